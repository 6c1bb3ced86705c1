"""The program for one host: wiring, the sampling loop, history, rules that can change while it runs."""

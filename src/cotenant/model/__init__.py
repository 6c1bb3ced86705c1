"""What was seen and what is asked: samples, windows, rates, pods and policy."""

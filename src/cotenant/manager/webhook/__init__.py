"""The admission webhook: colocation profiles applied to pods, and pods and configuration checked."""

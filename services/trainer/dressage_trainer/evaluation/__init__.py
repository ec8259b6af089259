"""Episodes on stock Gymnasium: evaluators for policies in training, players for candidates, both in sandboxes."""

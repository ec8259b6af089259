"""Whole seeded episodes of many candidates, played in batches and equal to stock Gymnasium's."""

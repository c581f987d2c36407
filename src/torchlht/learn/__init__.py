"""Training: options, the recipe, epochs and steps, targets for unknown labels, calibration."""

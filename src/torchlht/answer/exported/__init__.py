"""A run as one file that runs elsewhere, and back: ONNX, or a program of torch.export.

read      such a file as a `Predictor`, and what travels in it beside the network: tree, preprocessing, calibration, threshold
write     the file, checked against the run before it takes its name
"""

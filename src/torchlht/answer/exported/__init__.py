"""A run as one file, written and read: ONNX, or a program of torch.export.

read      the file as a `Predictor`, with its metadata: tree, preprocessing, calibration, threshold
write     the file, checked against the run before it is renamed into place
"""

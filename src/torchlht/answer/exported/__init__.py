"""A run as one file that runs elsewhere, and back: ONNX, or a program of torch.export.

metadata  what travels in the file beside the network: tree, preprocessing, calibration, threshold
write     the file, checked against the run before it takes its name
read      such a file as a `Predictor`
"""

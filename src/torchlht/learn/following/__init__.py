"""Boards that show a run while it trains: TensorBoard, MLflow, Weights & Biases, and those of installed packages."""

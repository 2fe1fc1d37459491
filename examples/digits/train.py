"""Train the demo's model: a small CNN on scikit-learn's handwritten digits, exported to ONNX.

    pip install -e .[test] && python examples/digits/train.py

Writes digits.onnx and test.npz (held-out images and labels) to its own folder. The repository has
both, so that the demo needs neither torch nor scikit-learn.
"""

from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

HERE = Path(__file__).parent


class Digits(nn.Module):
    """8×8 grey image → ten logits; one residual block, like larger vision models."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.block = nn.Sequential(
            nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16),
        )  # fmt: skip
        self.head = nn.Sequential(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 32), nn.ReLU())
        self.out = nn.Linear(32, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.stem(image)
        return self.out(self.head(torch.relu(x + self.block(x))))


def main() -> None:
    torch.manual_seed(7)
    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).astype(np.float32).reshape(-1, 1, 8, 8)
    split = train_test_split(images, labels, test_size=360, random_state=7, stratify=labels)
    train_x, test_x, train_y, test_y = split
    model = Digits()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
    x, y = torch.from_numpy(train_x), torch.from_numpy(train_y)
    for _ in range(40):
        for batch in torch.randperm(len(x)).split(64):
            loss = nn.functional.cross_entropy(model(x[batch]), y[batch], label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    model.eval()
    with torch.no_grad():
        accuracy = (model(torch.from_numpy(test_x)).argmax(1).numpy() == test_y).mean()
    print(f"accuracy on {len(test_x)} held-out images: {accuracy:.4f}")
    export(model, test_x, test_y)


def export(model: Digits, test_x: np.ndarray, test_y: np.ndarray) -> None:
    example = torch.from_numpy(test_x[:2])
    program = torch.onnx.export(
        model, (example,), dynamo=True, input_names=["image"], output_names=["logits"],
        dynamic_shapes=({0: torch.export.Dim("batch", min=1, max=4096)},),
    )  # fmt: skip
    program.save(str(HERE / "digits.onnx"))
    with torch.no_grad():
        logits = model(torch.from_numpy(test_x)).numpy()
    np.savez_compressed(HERE / "test.npz", images=test_x, labels=test_y, logits=logits)


if __name__ == "__main__":
    main()

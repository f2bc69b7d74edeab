"""Runs the notebooks beside this file from top to bottom; an error in any ends it. Pictures go to `notebook-pictures/`."""

import base64
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

out = Path("notebook-pictures")
out.mkdir(exist_ok=True)
for path in sorted(Path(__file__).parent.glob("*.ipynb")):
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": "."}}).execute()
    pictures = 0
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            png = output.get("data", {}).get("image/png")
            if png:
                pictures += 1
                (out / f"{path.stem}-{pictures}.png").write_bytes(base64.b64decode(png))
    print(f"{path.name}: {pictures} pictures", file=sys.stderr)

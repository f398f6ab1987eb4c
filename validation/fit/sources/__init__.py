"""How each source of measurements is fitted: one module per source, found by its name.

A module holds

* `FOLDER`: the source's sub-folder of the data folder (validation/data.py);
* `Request`: a frozen dataclass, checked in `__post_init__`, whose fields are the command's settings
  beside `source`, `out` and `plot`; those without a default are required;
* `fit(root, request) -> validation.fit.result.Fit`, `root` being that sub-folder.
"""

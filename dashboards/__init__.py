"""The dashboards as code: three definitions, and the classic JSON of Grafana that they come to.

`make dashboards` writes `charts/vrampack/files/dashboards`; a test compares. Read `definitions.py` first: each panel is
a title, what it tells, and its query. `panels.py` knows Grafana, and no metric.
"""

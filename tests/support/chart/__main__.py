"""Writes everything that is rendered from the chart; see `rendering.py`."""

from tests.support.chart.helm import locate_helm
from tests.support.chart.rendering import template_with, write_documents, write_files

write_documents()
write_files(template_with(locate_helm()))

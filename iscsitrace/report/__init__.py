"""The report: results as a document of plain text and numbers, the document as one HTML file or as Markdown.

It decides what is shown and in which order; what it shows is computed in ``analysis`` and drawn in ``plots``. Text from
a capture is hostile: it enters a page only through templates that escape everything.
"""

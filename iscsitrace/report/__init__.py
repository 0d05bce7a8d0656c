"""The report: a document of plain text and numbers, rendered as one HTML file or as Markdown.

The report selects and orders results; ``analysis`` computes them and ``plots`` draws them. Text from a capture is
hostile: it reaches a page only through templates that escape everything.
"""

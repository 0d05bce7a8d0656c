"""The model fitted to steady cycles: the points, the parameters, the residuals, and what a change would bring."""

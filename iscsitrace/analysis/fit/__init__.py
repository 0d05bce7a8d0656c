"""The model fitted to steady cycles: the points, the parameters and the residuals."""

"""Code to findings and corrected code."""

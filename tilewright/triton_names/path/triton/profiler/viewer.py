"""`triton.profiler.viewer`: prints profiles; a command, too."""

from tilewright.tuning.profile_view import main, parse, read, show_metrics

__all__ = ["main", "parse", "read", "show_metrics"]

if __name__ == "__main__":
    main()

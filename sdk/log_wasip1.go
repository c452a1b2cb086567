package sdk

import "log/slog"

// A guest has one host and one log, from before its own init functions run.
func init() { slog.SetDefault(slog.New(LogHandler())) }

package alert

// Named is an alert with its id.
func Named(a Alert) Alert { return a.named() }

// Expression is the regular expression of patterns.
func Expression(patterns []string) string { return expression(patterns) }

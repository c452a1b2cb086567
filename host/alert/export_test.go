package alert

// Named is an alert with its id.
func Named(a Alert) Alert { return a.named() }

// Expression is the regular expression of patterns.
func Expression(patterns []string) string { return expression(patterns) }

// Kept is of how many jobs a judge keeps something.
func Kept(j *Judge) int { return len(j.jobs) }

package alert

// Named is an alert with its id.
func Named(a Alert) Alert { return a.named() }

package host

// SetToken has the ids of a host's instances end in what token returns, which is
// called once per term and must never return the same for one server.
func SetToken(c *Config, token func() string) { c.token = token }

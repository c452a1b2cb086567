// Package guarantee is ElasticJob's barrier for listeners that run once over all
// hosts: each host marks that its items have begun, or completed, a fire, and the
// last one to arrive runs the listener.
package guarantee

package cluster

import "strings"

// namesOf names hosts for people: by the server's address, with the address of the API if several hosts share
// the server. Explanations and histories know only the server. An earlier process of a host at the same address
// has the same name.
func namesOf(hosts []Peer) func(Peer) string {
	apis := make(map[string]string)  // of each server, one
	several := make(map[string]bool) // servers
	for _, p := range hosts {
		if api, known := apis[p.ServerIP]; known && api != p.API {
			several[p.ServerIP] = true
		}
		apis[p.ServerIP] = p.API
	}
	return func(p Peer) string {
		if !several[p.ServerIP] || p.API == "" {
			return p.ServerIP
		}
		_, address, _ := strings.Cut(p.API, "://")
		if strings.HasPrefix(address, p.ServerIP+":") {
			return address
		}
		return p.ServerIP + " (" + address + ")"
	}
}

package event

// Behind records whether a host has found, in its present session, that the registry went back. It is for one
// goroutine; the zero value has found nothing.
type Behind struct {
	found bool   // the next session is the one that found it
	host  string // the id of the term that did
}

// See handles an event of the host. It returns whether the present session found the registry behind, and
// whether the event changed that. A doubt in the session changes nothing.
func (b *Behind) See(e Event) (behind, changed bool) {
	before := b.found || b.host != ""
	switch {
	case e.Kind == RegistryBehind:
		b.found, b.host = true, ""
	case e.Kind == Session && e.Wait == "" && e.Reason == SessionLive && b.found:
		b.found, b.host = false, e.Host
	case e.Kind == Session && e.Wait == "" && e.Reason == SessionLive && e.Host != b.host:
		b.host = ""
	}
	behind = b.found || b.host != ""
	return behind, behind != before
}

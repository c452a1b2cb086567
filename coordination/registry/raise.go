package registry

// Raise adds a base to the transaction numbers of a node.
func (n Node) Raise(base int64) Node {
	if n.Exists {
		n.Czxid, n.Mzxid = n.Czxid+base, n.Mzxid+base
	}
	return n
}

// Raise adds a base to the transaction number of a result.
func (r Result) Raise(base int64) Result {
	if r.Zxid != 0 {
		r.Zxid += base
	}
	return r
}

// Raise is the snapshot with a base added to all transaction numbers.
func (s Snapshot) Raise(base int64) Snapshot {
	if base == 0 {
		return s
	}
	raised := make(Snapshot, len(s))
	for q, n := range s {
		raised[q] = n.Raise(base)
	}
	return raised
}

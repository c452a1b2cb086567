package tree

import "encoding/json"

// Listening is a listener that has run for long on a host: an ephemeral node below listeners. A short one has
// no node. Operators write a kill into it.
type Listening struct {
	// Host is the id of the instance that runs it, Export the name of the module's function.
	Host   string `json:"host"`
	Export string `json:"export"`
	// Fire is the fire that the listener belongs to, without arguments.
	Fire Fire `json:"fire"`
	// Kill says that an operator wants it to end.
	Kill Kill `json:"kill,omitzero"`
}

// ParseListening reads a node below listeners; ok is false if no host wrote it.
func ParseListening(data []byte) (l Listening, ok bool) {
	err := json.Unmarshal(data, &l)
	return l, err == nil && l.Host != "" && l.Export != ""
}

// Data is what the node holds, JSON.
func (l Listening) Data() []byte {
	l.Fire = Fire{Instant: l.Fire.Instant, Trigger: l.Fire.Trigger, Source: l.Fire.Source}
	b, _ := json.Marshal(l) // texts and numbers always marshal
	return b
}

package auth

// Open is what is answered without asking who wants to know.
type Open string

// What may be open.
const (
	// OpenAuto is OpenAll on an address of this machine, else OpenHealth.
	OpenAuto Open = "auto"
	// OpenAll is /healthz, /readyz, the documents (/docs, /schemas) and /metrics, OpenHealth all but the last.
	OpenAll    Open = "all"
	OpenHealth Open = "health"
	OpenNone   Open = "none"
)

// Opens are all values of Open.
func Opens() []string {
	return []string{string(OpenAuto), string(OpenAll), string(OpenHealth), string(OpenNone)}
}

package tree

// Alerts names the nodes of a namespace's alerts. Their parent's name is invalid as a job's.
type Alerts struct{ root string }

// AlertsOf are the nodes of a namespace's alerts.
func AlertsOf(namespace string) Alerts {
	return Alerts{NewLayout(namespace, "").NamespaceNode() + "/" + delimiter + "alerts"}
}

// Hosts is the parent of all Host nodes.
func (a Alerts) Hosts() string { return a.root + "/hosts" }

// Host exists from when a host starts evaluating alerts until it stops in good order.
func (a Alerts) Host(id string) string { return a.root + "/hosts/" + id }

// Alive is the parent of all AliveOf nodes.
func (a Alerts) Alive() string { return a.root + "/alive" }

// AliveOf is there while the host's session lives; ephemeral.
func (a Alerts) AliveOf(id string) string { return a.root + "/alive/" + id }

// Keeper names the host that sends the alerts of all; ephemeral.
func (a Alerts) Keeper() string { return a.root + "/keeper" }

// Active is the parent of all ActiveOf nodes.
func (a Alerts) Active() string { return a.root + "/active" }

// ActiveOf holds one alert while it goes on.
func (a Alerts) ActiveOf(id string) string { return a.root + "/active/" + id }

// Over is the parent of all OverOf nodes.
func (a Alerts) Over() string { return a.root + "/over" }

// OverOf holds one alert that is over, until that has been sent.
func (a Alerts) OverOf(id string) string { return a.root + "/over/" + id }

// Silences is the parent of all Silence nodes.
func (a Alerts) Silences() string { return a.root + "/silences" }

// Silence says which alerts are not sent, and until when.
func (a Alerts) Silence(id string) string { return a.root + "/silences/" + id }

// Changes is set with every change of an alert or a silence.
func (a Alerts) Changes() string { return a.root + "/changes" }

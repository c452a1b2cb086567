package alert

import "github.com/wasmjob/wasmjob/internal/schema"

// SchemaName is the name of the schema of a file of alerts; docs/alerts.schema.json is it.
const SchemaName = "alerts"

// mostFailures is how many failures in a row a rule may wait for.
const mostFailures = 1000

// Schema is the JSON Schema of a file of alerts, for editors: of what the reader reads.
func Schema() []byte {
	return schema.Document(SchemaName, "wasmjob: who gets messages about what", fileFields)
}

var fileFields = schema.Object{
	{Name: "receivers", Help: "Who takes messages, by name", Is: schema.Map(receiverKinds.Shape())},
	{Name: "routes", Help: "Which alerts go to whom; the first that fits counts", Required: true, Is: schema.List(routeFields.Shape())},
	{Name: "defaults", Help: "The rules of all jobs", Is: ruleFields.Shape()},
	{Name: "jobs", Help: "The rules of some jobs; later entries win", Is: schema.List(jobFields.Shape())},
	{Name: "hosts", Help: "The rules about hosts", Is: hostFields.Shape()},
	{Name: "errorHandlers", Help: "The routes of ElasticJob's error handlers", Is: handlerFields().Shape()},
}

// handlerFields are ElasticJob's error handlers.
func handlerFields() (object schema.Object) {
	for _, name := range handlers {
		object = append(object, schema.Field{Name: name, Help: "Name of a route", Is: schema.Text()})
	}
	return object
}

var jobFields = append(schema.Object{
	{Name: "jobs", Help: "Names of jobs, or patterns such as team-a-*; without any all that have the labels", Is: schema.Texts(schema.Text())},
	{Name: "labels", Help: "Conditions for the labels of the jobs, such as team=billing,tier!=test", Is: schema.Text()},
}, ruleFields...)

// ruleFields are the rules of jobs, hostFields those about hosts, as the table has them.
var ruleFields, hostFields = objectOf(settingsOf(false)), objectOf(settingsOf(true))

func objectOf(settings []setting) (object schema.Object) {
	for _, s := range settings {
		object = append(object, s.Field)
	}
	return object
}

var routeFields = schema.Object{
	{Name: "name", Help: "Letters, digits, - and _", Required: true, Is: schema.Text()},
	{Name: "jobs", Help: "Names of jobs, or patterns; without any all alerts", Is: schema.Texts(schema.Text())},
	{Name: "labels", Help: "Conditions for the labels of jobs, such as team=billing,tier!=test; without any all alerts", Is: schema.Text()},
	{Name: "rules", Help: "Rules; without any all", Is: schema.Texts(schema.Words(ruleNames()...))},
	{Name: "to", Help: "Names of receivers", Required: true, Is: schema.Texts(schema.Text())},
	{Name: "group", Help: "Alerts that go into one message: those of the same job, rule, or both; default: [job]", Is: schema.List(schema.Words("job", "rule"))},
	{Name: "wait", Help: "How long a first alert waits for others, such as 30s", Is: orOff(schema.Duration())},
	{Name: "repeat", Help: "How soon an alert that goes on is sent again, such as 4h", Is: orOff(schema.Duration())},
	{Name: "resolved", Help: "Whether ends of alerts are sent; default: true", Is: schema.Boolean()},
	{Name: "continue", Help: "Whether later routes get the alert, too; default: false", Is: schema.Boolean()},
}

func ruleNames() (names []string) {
	for _, r := range AllRules() {
		names = append(names, string(r))
	}
	return names
}

// receiverKinds are the kinds of receivers; a receiver has one.
var receiverKinds = kindFields()

func kindFields() (object schema.Object) {
	for _, k := range Kinds() {
		object = append(object, schema.Field{Name: string(k), Is: receiverFields[k].Shape()})
	}
	return object
}

// receiverFields are the fields of each kind.
var receiverFields = map[Kind]schema.Object{
	Email: {
		{Name: "to", Help: "Addresses, such as ops@example.com", Required: true, Is: schema.Texts(schema.Text())},
		{Name: "from", Help: "The sender's address", Required: true, Is: schema.Text()},
		{Name: "server", Help: "HOST:PORT of the mail server", Required: true, Is: schema.Text()},
		{Name: "user", Help: "Whom to log in as", Is: schema.Text()},
		{Name: "passwordFile", Help: "File with the password", Is: schema.Text()},
		{Name: "plain", Help: "Whether to send without TLS", Is: schema.Boolean()},
	},
	Slack:    posted(),
	DingTalk: posted(schema.Field{Name: "secretFile", Help: "File with the secret that signs messages", Is: schema.Text()}),
	WeCom:    posted(),
	Feishu:   posted(schema.Field{Name: "secretFile", Help: "File with the secret that signs messages", Is: schema.Text()}),
	Telegram: {
		{Name: "chat", Help: "The chat's id", Required: true, Is: schema.Text()},
		{Name: "tokenFile", Help: "File with the bot's token", Required: true, Is: schema.Text()},
		{Name: "url", Help: "Another address of the API", Is: schema.Text()},
	},
	Webhook: posted(schema.Field{Name: "tokenFile", Help: "File with the token that requests carry", Is: schema.Text()}),
}

// posted are the fields of a receiver to which messages are posted.
func posted(more ...schema.Field) schema.Object {
	return append(schema.Object{
		{Name: "url", Help: "Where messages are posted, if it is no secret", Is: schema.Text()},
		{Name: "urlFile", Help: "File in which the URL stands alone", Is: schema.Text()},
	}, more...)
}

// orOff is a shape, or the word by which a rule is turned off.
func orOff(s schema.Shape) schema.Shape { return schema.Any(s, schema.Words(off)) }

package users

import (
	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/internal/schema"
)

// SchemaName is the name of the schema of a users file; docs/users.schema.json is it.
const SchemaName = "users"

// Schema is the JSON Schema of a users file, for editors: of what the reader reads.
func Schema() []byte {
	return schema.Document(SchemaName, "wasmjob: who may do what on a host", fileFields)
}

var fileFields = schema.Object{
	{Name: "users", Help: "People; \"users: []\" has none", Is: schema.List(userFields.Shape())},
	{Name: "tokens", Help: "Tokens of programs: 'wasmjob access token create' writes them", Is: schema.List(tokenFields.Shape())},
	{Name: "oidc", Help: "The OpenID Connect provider by which people sign in", Is: providerFields.Shape()},
}

var userFields = schema.Object{
	{Name: "name", Help: "At most 64 letters, digits and . _ @ + -", Required: true, Is: schema.Text()},
	{Name: "password", Help: "Hash of the password: 'wasmjob access user passwd' writes it", Is: schema.Text()},
	{Name: "roles", Help: "Roles, each with the jobs that it is for, such as {operator: etl-*}", Required: true, Is: roles()},
	{Name: "certificates", Help: "Subjects of client certificates, such as CN=ann,O=Example", Is: schema.Texts(schema.Text())},
}

var tokenFields = schema.Object{
	{Name: "name", Help: "At most 64 letters, digits and . _ @ + -", Required: true, Is: schema.Text()},
	{Name: "id", Help: "The part of the token that is no secret", Required: true, Is: schema.Text()},
	{Name: "sha256", Help: "The sum of its secret part", Required: true, Is: schema.Text()},
	{Name: "roles", Help: "Roles, each with the jobs that it is for, such as {viewer: \"*\"}", Required: true, Is: roles()},
	{Name: "created", Help: "When it was made", Is: schema.Instant()},
	{Name: "expires", Help: "Until when it is good", Required: true, Is: schema.Instant()},
}

var providerFields = schema.Object{
	{Name: "name", Help: "What the sign-in page calls the provider; default: the host of the issuer", Is: schema.Text()},
	{Name: "issuer", Help: "The provider's address, such as https://sso.example.com/realms/ops", Required: true, Is: schema.Text()},
	{Name: "clientId", Help: "The client's id at the provider", Required: true, Is: schema.Text()},
	{Name: "clientSecretFile", Help: "File with the client's secret, mode 0600", Is: schema.Text()},
	{Name: "scopes", Help: "Scopes to ask for besides openid", Is: schema.Texts(schema.Text())},
	{Name: "nameClaim", Help: "Claim with the user's name; default: " + defaultNameClaim, Is: schema.Text()},
	{Name: "groupsClaim", Help: "Claim with the user's groups; default: " + defaultGroupsClaim, Is: schema.Text()},
	{Name: "groups", Help: "Roles by group, each with the jobs that it is for", Required: true, Is: schema.Map(roles())},
}

// roles is a mapping of roles to patterns of jobs.
func roles() schema.Shape {
	var object schema.Object
	for _, role := range auth.Roles() {
		object = append(object, schema.Field{Name: role, Is: schema.Texts(schema.Text())})
	}
	return object.Shape()
}

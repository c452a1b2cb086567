package auth

import (
	"fmt"
	"slices"
	"strings"

	"github.com/wasmjob/wasmjob/host/config/ceiling"
	"github.com/wasmjob/wasmjob/host/event/operation"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Role is a name under which actions are given to people and programs.
type Role string

// The roles. Each may do all that the ones before it may.
const (
	RoleViewer   Role = "viewer"
	RoleOperator Role = "operator"
	RoleAuthor   Role = "author"
	RoleAdmin    Role = "admin"
)

// grant is a row of the table: what a role may do.
type grant struct {
	role Role
	may  []operation.Action
}

// table says what each role may do, the weakest role first.
func table() []grant {
	return []grant{
		{RoleViewer, []operation.Action{operation.View}},
		{RoleOperator, []operation.Action{operation.View, operation.Operate}},
		{RoleAuthor, []operation.Action{operation.View, operation.Operate, operation.Author}},
		{RoleAdmin, []operation.Action{operation.View, operation.Operate, operation.Author, operation.Admin}},
	}
}

// Roles are the names of all roles, the weakest first.
func Roles() []string {
	var names []string
	for _, g := range table() {
		names = append(names, string(g.role))
	}
	return names
}

// May reports whether the role has the action.
func (r Role) May(a operation.Action) bool {
	return slices.ContainsFunc(table(), func(g grant) bool { return g.role == r && slices.Contains(g.may, a) })
}

// weakest is the first role of the table that has the action.
func weakest(a operation.Action) Role {
	for _, g := range table() {
		if slices.Contains(g.may, a) {
			return g.role
		}
	}
	return RoleAdmin
}

const (
	// AllJobs is the pattern that every job's name matches.
	AllJobs = "*"
	// NoJob is a pattern that no job's name matches, since names have no slash.
	NoJob = "/"
)

// Binding gives a role for the jobs of some patterns, as path.Match has them.
type Binding struct {
	Role Role     `json:"role"`
	Jobs []string `json:"jobs"`
}

// String is the binding as ParseBinding reads it.
func (b Binding) String() string { return string(b.Role) + "=" + strings.Join(b.Jobs, ",") }

// ParseBinding reads ROLE=PATTERN,PATTERN…, or ROLE for all jobs.
func ParseBinding(s string) (Binding, error) {
	role, list, some := strings.Cut(s, "=")
	if !some {
		list = AllJobs
	}
	b := Binding{Role: Role(role), Jobs: strings.Split(list, ",")}
	return b, b.Check()
}

// Check says what is wrong with the binding; nil if nothing is.
func (b Binding) Check() error {
	if err := CheckRole(string(b.Role)); err != nil {
		return err
	}
	if len(b.Jobs) == 0 {
		return fmt.Errorf("the role %s has no jobs, expected a pattern such as etl-* or *", b.Role)
	}
	for _, p := range b.Jobs {
		if err := ceiling.CheckPattern(p); err != nil {
			return err
		}
	}
	return nil
}

// CheckRole checks the name of a role.
func CheckRole(name string) error {
	if slices.Contains(Roles(), name) {
		return nil
	}
	return words.LateError(func() string {
		return fmt.Sprintf("found the role %q, expected one of %s%s", words.Clip(name), strings.Join(Roles(), ", "), words.Suggest(name, Roles()))
	})
}

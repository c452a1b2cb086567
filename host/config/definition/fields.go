package definition

import (
	"slices"
	"strings"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// known are the settings of a definition.
type known struct {
	settings []jobconfig.Setting
	fields   []string
	below    map[string][]string // fields of the mappings that have fields
	props    map[string]string
}

func knownSettings() known {
	return known{jobconfig.Settings(), fieldNames(), fieldsBelow(), propFields()}
}

// fieldNames are the fields of a job, in the order of the documentation.
func fieldNames() []string {
	return namesOf(func(name string) (string, bool) { return name, !strings.Contains(name, ".") })
}

// fieldsBelow are the fields of mappings, such as retry, by the mapping.
func fieldsBelow() map[string][]string {
	below := make(map[string][]string)
	for _, s := range jobconfig.Settings() {
		if mapping, name, ok := strings.Cut(s.Name, "."); ok {
			below[mapping] = append(below[mapping], name)
		}
	}
	return below
}

func namesOf(pick func(string) (string, bool)) (names []string) {
	for _, s := range jobconfig.Settings() {
		if name, ok := pick(s.Name); ok {
			names = append(names, name)
		}
	}
	return names
}

// propFields are the fields whose values travel in properties of this host's.
func propFields() map[string]string {
	fields := make(map[string]string)
	for _, s := range jobconfig.Settings() {
		if s.Prop != "" && s.Prop != jobconfig.PropStreamingProcess {
			fields[s.Prop] = s.Name
		}
	}
	return fields
}

// knownElsewhere explains fields that other schedulers have. The names are in lower case.
func knownElsewhere() map[string]string {
	const dropped = "is a field of ElasticJob 1.x that has no meaning any more; leave it out"
	const granted = "is granted by the operator, in the host's grants (docs/grants.md), never in the job's own file; a job says what it needs in needs"
	return map[string]string{
		"mounts":                                granted,
		"mount":                                 granted,
		"dirs":                                  granted,
		"net":                                   granted,
		"secrets":                               granted,
		"grants":                                granted,
		"env":                                   granted,
		"joblistenertypes":                      "names Java classes; a module exports its listeners (job_before_executed and others), and nothing has to be said here",
		"jobextraconfigurations":                "is ElasticJob's tracing, which needs a Java host; what the registry has of it is kept",
		"jobexecutorthreadpoolsizeprovidertype": "is a Java host's thread pool; use maxConcurrency; what the registry has of it is kept",
		"jobexecutorservicehandlertype":         "is a Java host's thread pool; use maxConcurrency; what the registry has of it is kept",
		"jobtype":                               "unknown field; did you mean type?",
		"name":                                  "unknown field; did you mean jobName?",
		"schedule":                              "unknown field; did you mean cron?",
		"strategy":                              "unknown field; did you mean jobShardingStrategyType?",
		"jobshardingstrategyclass":              "unknown field; did you mean jobShardingStrategyType? It takes the class name, too",
		"scriptcommandline":                     "unknown field; did you mean args? The program is the module",
		"concurrentdataprocessthreadcount":      "unknown field; did you mean maxConcurrency, or a larger shardingTotalCount?",
		"jobproperties":                         "is a field of ElasticJob 2.x; use jobErrorHandlerType and maxConcurrency",
		"jobeventconfigs":                       "is a field of ElasticJob 2.x; the host keeps events itself",
		"monitorport":                           dropped,
		"processcountintervalseconds":           dropped,
	}
}

// unknown returns the message for an unknown field, and the known one that was probably meant, or empty.
func unknown(name string, known []string) (message, meant string) {
	if reason, ok := knownElsewhere()[strings.ToLower(name)]; ok {
		return reason, ""
	}
	if near := nearest(name, known); near != "" {
		return "unknown field; did you mean " + near + "?", near
	}
	if len(known) > 10 {
		return "unknown field; docs/definitions.md lists the fields", ""
	}
	return "unknown field, expected one of " + strings.Join(known, ", "), ""
}

// nearest is the known name that somebody may have meant, or empty.
func nearest(name string, known []string) string {
	if len(name) > 64 { // nothing that long is known
		return ""
	}
	best, least := "", max(2, len(name)/3)+1
	for _, k := range known {
		if strings.EqualFold(k, name) {
			return k
		}
		if d := words.Edits(strings.ToLower(name), strings.ToLower(k)); d < least && d < len(k) {
			best, least = k, d
		}
	}
	return best
}

// isField reports whether a name is one of the known, in exactly this form.
func isField(name string, known []string) bool { return slices.Contains(known, name) }

package api

import (
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// apiText describes the API.
const apiText = "The API of every host of a cluster: each host answers for all hosts. docs/api.md has examples.\n\n" +
	"Send the host's token, or a user's token, as `Authorization: Bearer TOKEN`. Errors are problem details (RFC 9457); errors about a part of the request name that part in `errors`, " +
	"as in `query.limit` or `body.settings.cron`. Hosts reject unknown parameters and fields. Times are RFC 3339; durations in fields that end in `Ns` are nanoseconds. " +
	"Later versions may add fields to answers: clients must ignore fields that they do not know."

// lookTexts describe the endpoints that change nothing, by their ids, beside their summaries; those that do
// are in the catalogue, package operation.
func lookTexts() map[string]string {
	const (
		pages = " Without a shared database, the host asks all other hosts, and names in `silent` those that do not answer within a second. A page with a `next` may have fewer records than its limit, even none; the last page has no `next`."
		read  = "Read from the registry now."
	)
	return map[string]string{
		"createLoginLink":  "This needs the host's own token; other tokens get 403. The link signs one browser in, once, with all roles, and expires after a few minutes.",
		"getBackfill":      "The job's current backfill, and the last that ended. With `from` and `to`, also the instants that a backfill of that range would run by the job's current schedule. " + read,
		"getStatus":        "Only the host that answers: its jobs, their items, what it waits for, the files that it refused, its session with the registry. Only with `full=true` does the host ask the registry.",
		"getOverview":      "A summary for operators. Each list has at most 20 entries; other operations have the whole lists.",
		"listJobs":         "Jobs of all hosts. Their state is at most 1.5 s old, or 2.5 s while a host does not answer. The host does not ask the registry. `counts` counts all jobs by health, regardless of the filter.",
		"getJob":           "A job over all hosts: its items and the host of each, the job's status on each host, and its next instants.",
		"listAlerts":       "Alerts of the jobs that the user may see, with the begin of each, the receivers of its messages and the messages that were sent; and the silences in force. The host reads the registry only if alerts or silences have changed.",
		"listHosts":        "All hosts of the namespace; the host that answers this request comes first. A host that does not answer is listed with the reason in `silent` and its last report.",
		"getRestart":       "What runs on a host, which of its jobs no other host can run and why, and whether the other hosts have slots for what it runs. `answer` is yes, no, or unknown if it depends on a host that cannot be asked. This needs a role for all jobs, `*`.",
		"listModules":      "Modules by digest: the files of each, the jobs that run it, the hosts that have it, and what it is granted.",
		"getCalendar":      "Instants of all jobs that have a schedule and are not paused. A job that fires more often than once an hour and more than 60 times in the range is in `frequent`, with its first instant; so are hourly jobs if there are too many instants.",
		"trySchedule":      "The next instants of a cron expression, as a host reads it. The answer to an invalid expression is an error that says what is wrong.",
		"listLimits":       read + " Keys of `concurrency` have the items that run, and those that wait in the order in which they get a permit. Keys of `rate` have the number of items that began lately, and when those that wait may begin. Items of jobs that the user may not see are only counted, or left out.",
		"listRegistryJobs": read + " All jobs of the registry, also those that no host has.",
		"getShards":        read + " The owner and the running instance of each item, on hosts of wasmjob and of ElasticJob.",
		"getKept":          read + " What items keep from run to run. Values of the key/value state are included only if the request names one item.",
		"getConfig":        read + " All editable settings, by their names in a definition file. `origins` has the source of each value; the host finds the author of a change in the histories of all hosts. Send the ETag as `If-Match` of an edit.",
		"listFires":        "Each fire is one record over all hosts, ordered by the time at which it began." + pages,
		"listRuns":         "Runs of single items, ordered by the time at which they began. A run that was taken over is listed once for each of its hosts, unless hosts share a database." + pages,
		"explainFire":      "An explanation in sentences with times, from the histories of all hosts: who had each item, what it waited for, who disabled it, which host died, what the schedule says. Each sentence has the events and changes that prove it, and each item has a verdict. Users who may see the job also see what happened to the hosts that had it.",
		"getRun":           "A run by its id, with its events and the newest 1,000 lines that its guest logged.",
		"listEvents":       "Events of hosts, as in the history file. The kinds `item.started`, `item.ended` and `item.completed` are about runs." + pages,
		"listLines":        "Log lines of all runs. Lines below the level info are included only with `level`." + pages,
		"listChanges":      "Who changed what, when, from where and why. Changes that did not take effect have the reason in `error`." + pages,
		"streamJobs": "The first event has all jobs, later ones only the changed jobs; changes within a quarter of a second are one event. " +
			"Send the id of the last event as `Last-Event-ID`: the stream continues after it, or begins with all jobs again if too much has changed since, or if another host answers. " +
			"A host accepts 1,000 streams, and 100 of one user or token; it rejects more with 429 and `Retry-After`. It ends a stream whose client takes longer than 10 s to read an event.",
		"streamLines": "Log lines of a job or of a run, on all hosts, in the order of their arrival. The id of an event is the line's time. " +
			"A host accepts 200 of these streams, and 20 of one user or token; it rejects more with 429 and `Retry-After`. " +
			"`lost` counts the lines before this one that were not sent, because they came too fast.",

		"listGoneHosts": "Hosts whose sessions ended in the last 24 hours without an orderly stop and that have not come back, as far as the present hosts have seen. This needs a role for all jobs, `*`; for other users the list is empty.",
	}
}

// commonTexts describe fields, by their names in JSON, that have no comment of their own.
func commonTexts() map[string]string {
	return map[string]string{
		"about":        "What the process reports about itself.",
		"admin":        "The address of the host's API.",
		"after":        "The values after the edit.",
		"api":          "The URL of its API; missing if other hosts cannot reach it.",
		"attempt":      "The number of the attempt, from 1.",
		"batches":      "How many batches a DATAFLOW job has processed.",
		"before":       "The values before the edit.",
		"begun":        "When it began.",
		"calls":        "How many calls the guest made.",
		"completed":    "When it last completed a run.",
		"counts":       "All jobs by health.",
		"disabled":     "An operator keeps it from running.",
		"droppedLines": "Lines that were beyond the limits of one run.",
		"durationNs":   "How long it took, in nanoseconds.",
		"ended":        "When it ended.",
		"failover":     "It was taken over from a host that died.",
		"fence":        "The fence token: greater for each later run of the item.",
		"files":        "Names of the files with this content.",
		"gone":         "It has died, and its items have not been taken over yet.",
		"granted":      "What it is granted outside its sandbox.",
		"host":         "The instance id of the host, or its address.",
		"hosts":        "The hosts of the fire, or of the cluster.",
		"id":           "The id that names it in requests.",
		"instant":      "The scheduled time, or the time of the trigger.",
		"items":        "The sharding items that this is about.",
		"lagNs":        "How much later than scheduled it began, in nanoseconds, also as a catch-up, after a misfire or by failover; 0 for a trigger.",
		"lastEnd":      "When its last run ended.",
		"memoryBytes":  "The size of the guest's memory at the end.",
		"misfire":      "Whether the item runs once more after an instant that came while it ran.",
		"misfired":     "An instant came while it ran.",
		"modules":      "The modules of all hosts.",
		"namespace":    "The namespace in the registry.",
		"next":         "The next scheduled instant.",
		"nextHour":     "What fires within an hour.",
		"now":          "The time of the host that answers.",
		"outcome":      "How the run ended: OK, FAIL, RETRY, CANCELLED, TIMEOUT, TRAP, EXIT, ERROR, WORKER, LOST or HELD.",
		"outside":      "What it did with each capability, by name.",
		"owner":        "The instance that has the item.",
		"parameter":    "The parameter of the item.",
		"pid":          "The id of the process.",
		"ready":        "It has a live session, and its jobs have joined.",
		"reasons":      "Why it was refused, in words.",
		"records":      "The records of the page, or how many a DATAFLOW job has processed.",
		"refused":      "Files that hosts refused.",
		"runId":        "The id of the run: JOB/INSTANT/ITEM.",
		"runningOn":    "The instance that runs it.",
		"serverIp":     "The address that names the server.",
		"signer":       "The key that signed the module.",
		"silent":       "Hosts that did not answer or no longer run, and why: their records are missing.",
		"since":        "When this state began.",
		"source":       "What made it run: schedule, trigger, misfire, failover, retry.",
		"started":      "When it was started.",
		"total":        "The total amount of work, as the guest reported it.",
		"trigger":      "The number of the trigger round; missing if it was scheduled.",
		"cron":         "The cron expression of the schedule; empty if only triggers run the job.",
		"description":  "What the definition says about the job.",
		"digest":       "The SHA-256 of the module, in hexadecimal.",
		"file":         "The name of the file.",
		"instance":     "The id of an instance: of one host in one session with the registry.",
		"item":         "The number of the sharding item, from 0; missing or -1 if it is about none.",
		"job":          "The name of the job.",
		"leader":       "The id of the instance that leads the job; for an instance, whether it leads.",
		"message":      "The line that was logged, or what the guest said when it ended.",
		"module":       "The file of the module.",
		"name":         "The name of the job.",
		"reason":       "The reason in words; empty without one.",
		"server":       "The address of the server.",
		"status":       "The state of the host and of each of its jobs.",
		"text":         "The sentence in words.",
		"time":         "When it happened, or will happen.",
		"timeZone":     "The time zone of the schedule: an IANA name such as Europe/Berlin, GMT+08:00 or the like, or Local for the zone of each host that runs it.",
		"type":         "What the module is: SIMPLE, DATAFLOW or SCRIPT.",
		"version":      "The version of the program.",

		"shardingTotalCount": "How many sharding items the job has.",

		"warnings": "Problems that do not keep it from running.",
	}
}

// openAnswers allows further fields in answers: a client ignores unknown ones. Requests have none.
func openAnswers(o *huma.OpenAPI) {
	schemas := o.Components.Schemas.Map()
	closed := make(map[*huma.Schema]bool)
	var visit func(s *huma.Schema)
	visit = func(s *huma.Schema) {
		if s == nil || closed[s] {
			return
		}
		closed[s] = true
		visit(schemas[strings.TrimPrefix(s.Ref, "#/components/schemas/")])
		visit(s.Items)
		for _, p := range s.Properties {
			visit(p)
		}
	}
	for _, item := range o.Paths {
		for _, op := range []*huma.Operation{item.Get, item.Post, item.Patch, item.Delete} {
			if op == nil || op.RequestBody == nil {
				continue
			}
			for _, media := range op.RequestBody.Content {
				visit(media.Schema)
			}
		}
	}
	for _, s := range schemas {
		if !closed[s] && s.AdditionalProperties == false {
			s.AdditionalProperties = nil
		}
	}
}

// describeBodies says how an operation refuses a body that it cannot read.
func describeBodies(o *huma.OpenAPI) {
	for _, item := range o.Paths {
		for _, op := range []*huma.Operation{item.Get, item.Post, item.Patch, item.Delete} {
			if op == nil || op.RequestBody == nil {
				continue
			}
			for _, code := range []int{http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType} {
				r := *op.Responses[strconv.Itoa(http.StatusUnprocessableEntity)]
				r.Description = http.StatusText(code)
				op.Responses[strconv.Itoa(code)] = &r
			}
		}
	}
}

// describeFields gives each field of the schemas its comment in the code.
func describeFields(r huma.Registry) {
	texts, common := fieldTexts(), commonTexts()
	for name, schema := range r.Map() {
		t := r.TypeFromRef("#/components/schemas/" + name)
		for t != nil && t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t == nil {
			continue
		}
		if schema.Description == "" {
			if text, named := strings.CutPrefix(texts[typeKey(t)], typeName(t)+" "); named {
				schema.Description = name + " " + text
			}
		}
		if t.Kind() == reflect.Struct {
			describeStruct(schema, t, texts)
		}
		for field, p := range schema.Properties {
			if p.Description == "" {
				p.Description = common[field]
			}
		}
	}
}

func describeStruct(schema *huma.Schema, t reflect.Type, texts map[string]string) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		name, _, _ := strings.Cut(tag, ",")
		inner := f.Type
		for inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if f.Anonymous && tag == "" && inner.Kind() == reflect.Struct {
			describeStruct(schema, inner, texts)
			continue
		}
		p := schema.Properties[name]
		if p == nil {
			continue
		}
		if p.Type == huma.TypeArray && strings.Contains(tag, ",omit") {
			p.Nullable = false // it is not there
		}
		if p.Description != "" {
			continue
		}
		p.Description = strings.TrimSpace(texts[typeKey(t)+"."+f.Name] + " " + texts["values of "+typeKey(elem(f.Type))])
	}
}

// elem returns the element type of a list or a pointer.
func elem(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	return t
}

// typeKey names a type in fieldTexts: host.JobStatus.
func typeKey(t reflect.Type) string {
	return t.PkgPath()[strings.LastIndexByte(t.PkgPath(), '/')+1:] + "." + typeName(t)
}

// typeName is the name of a type, without those of its parameters.
func typeName(t reflect.Type) string {
	name, _, _ := strings.Cut(t.Name(), "[")
	return name
}

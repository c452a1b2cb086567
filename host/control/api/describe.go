package api

import (
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// apiText describes the API.
const apiText = "The API of every host of a cluster: each answers for all of them. docs/api.md has examples.\n\n" +
	"Send the host's token, or one of a user, as `Authorization: Bearer TOKEN`. Errors are problem details (RFC 9457); those about a part of the request name it in `errors`, " +
	"as in `query.limit` or `body.settings.cron`. Unknown parameters and fields are refused. Times are RFC 3339, durations in fields that end in `Ns` are nanoseconds. " +
	"Fields may be added to answers at any time: a client passes over what it does not know."

// lookTexts describe the endpoints that change nothing, by their ids, beside their summaries; those that do
// are in the catalogue, package operation.
func lookTexts() map[string]string {
	const (
		pages = " Without a shared database all hosts are asked, and those that have not answered within a second are named in `silent`. A page may have fewer records than its limit, even none, and a `next`: it is the last page only if `next` is missing."
		read  = "Read from the registry now."
	)
	return map[string]string{
		"createLoginLink":  "It needs the host's own token: all others get 403. The link signs one browser in, once, with all roles, and is good for a few minutes.",
		"getBackfill":      "The backfill of the job that goes on, and the last that has ended. With `from` and `to` the answer also has the instants that a backfill of that range would run, by the schedule that the job has now. " + read,
		"getStatus":        "The host that is asked alone: its jobs, their items, what it waits for, the files that it refused, its session with the registry. `full=true` asks the registry; without it nothing is asked.",
		"getOverview":      "What an operator looks at first. Each list has at most 20 entries; the other operations have all.",
		"listJobs":         "Jobs of all hosts: their state is at most one and a half seconds old, a second more while a host does not answer. The registry is not asked. `counts` counts all jobs by health, whatever the filter is.",
		"getJob":           "A job over all hosts: its items, each on the host that has it, what each host says of it, and its next instants.",
		"listAlerts":       "Alerts of jobs that the sender may see, with when each began, who is to get messages about it and what was sent, and the silences in force. The registry is read if any of it has changed since it was read last.",
		"listHosts":        "All hosts of the namespace, the one that answers first. A host that does not answer is there, with the reason in `silent` and what it said last.",
		"getRestart":       "What runs on a host, which of its jobs no other host can run and why, and whether the others have slots for what it runs. `answer` is yes, no, or unknown if it rests on a host that cannot be asked. It needs a role for all jobs, `*`.",
		"listModules":      "Modules by their digests: which files they are, which jobs run them, on which hosts, and what they are granted.",
		"getCalendar":      "Instants of all jobs that have a schedule and are not paused. A job that fires more often than once an hour, and more than 60 times, is in `frequent`, with its first; so is one of every hour if there are too many.",
		"trySchedule":      "The next instants of a cron expression, as a host would read it; what is wrong with it is the answer's error.",
		"listLimits":       read + " Keys of `concurrency` have the items that run and the wishes that wait, in the order in which they get a permit; keys of `rate` have how many have begun lately, and from when those that wait may begin. What is of jobs that the asking one may not see is counted only, or left out.",
		"listRegistryJobs": read + " These are the jobs that the registry knows, also those that no host has.",
		"getShards":        read + " Who owns and runs each item, on hosts of ours and of ElasticJob.",
		"getKept":          read + " What items keep from run to run. Values of the key/value state are shown if one item is asked for.",
		"getConfig":        read + " All settings that can be edited, by their names in a definition file, and in `origins` where each value comes from: who changed one is looked for in the histories of all hosts. The ETag is for `If-Match` of an edit.",
		"listFires":        "Each fire is one record over all hosts, by the time at which it began." + pages,
		"listRuns":         "Runs of single items, by the time at which they began. A run that went from host to host is listed once for each, unless hosts share a database." + pages,
		"explainFire":      "In sentences with times, from the histories of all hosts: who had each item, what it waited for, who disabled it, which host died, what the schedule says. Each sentence has the events and changes that it rests on, and each item a verdict. Who may see the job also sees what became of the hosts that had it.",
		"getRun":           "A run by its id, with its events and the newest 1,000 lines that its guest logged.",
		"listEvents":       "What hosts reported, as in the history file. Of the kinds, `item.started`, `item.ended` and `item.completed` are about runs." + pages,
		"listLines":        "Lines of all runs. Lines below the level info are found only with `level`." + pages,
		"listChanges":      "Who changed what, when, from where and why: also what did not take effect, with the reason in `error`." + pages,
		"streamJobs": "The first event has all jobs, those after it only what has changed; all that changes within a quarter of a second is one event. " +
			"The id of an event is for `Last-Event-ID`: the stream goes on there, or begins with all jobs again if too much has changed since, or another host answers. " +
			"A user or token has 100 streams at a host at most, and a host 1,000: more are refused with 429 and `Retry-After`. A host ends one whose reader takes longer than 10 s for an event.",
		"streamLines": "Lines of a job or of a run, on all hosts, in the order in which they come. The id of an event is the line's time. " +
			"A user or token has 20 of these streams at a host at most, and a host 200: more are refused with 429 and `Retry-After`. " +
			"`lost` says how many lines before it came faster than they could be sent.",

		"listGoneHosts": "Hosts whose sessions ended in the last 24 hours without that they had stopped in good order, and that are not back, as far as hosts that are here have seen it. It needs the role for all jobs, `*`; for others the list is empty.",
	}
}

// commonTexts describe fields, by their names in JSON, that have no comment of their own.
func commonTexts() map[string]string {
	return map[string]string{
		"about":        "What the process says of itself.",
		"admin":        "The address of the host's API.",
		"after":        "What there is after the edit.",
		"api":          "The URL of its API; missing if other hosts cannot reach it.",
		"attempt":      "The number of the attempt, from 1.",
		"batches":      "How many batches a DATAFLOW job has processed.",
		"before":       "What there was before the edit.",
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
		"files":        "Names of files with these bytes.",
		"gone":         "It has died, and its items are not settled yet.",
		"granted":      "What it is granted outside of its sandbox.",
		"host":         "The instance id of the host, or its address.",
		"hosts":        "The hosts of the fire, or of the cluster.",
		"id":           "The id that names it in requests.",
		"instant":      "The scheduled time, or the time of the trigger.",
		"items":        "The sharding items that it is about.",
		"lagNs":        "How much later than scheduled it began, in nanoseconds, also as a catch-up, after a misfire or by failover; 0 for a trigger.",
		"lastEnd":      "When its last run ended.",
		"memoryBytes":  "The size of the guest's memory at the end.",
		"misfire":      "Run once more when an instant came while it ran.",
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
		"silent":       "Hosts that have not answered, or do not run any more, and why: what they know is missing.",
		"since":        "The time since when it is so.",
		"source":       "What made it run: schedule, trigger, misfire, failover, retry.",
		"started":      "When it was started.",
		"total":        "How much there is to do, as the guest says.",
		"trigger":      "The number of the trigger round; missing if it was scheduled.",
		"cron":         "The cron expression of the schedule; empty if only triggers run the job.",
		"description":  "What the definition says about the job.",
		"digest":       "The SHA-256 of the module, in hexadecimal.",
		"file":         "The name of the file.",
		"instance":     "The id of an instance: of one host in one session with the registry.",
		"item":         "The number of the sharding item, from 0; missing or -1 if it is about none.",
		"job":          "The name of the job.",
		"leader":       "The id of the instance that leads the job; of an instance, whether it does.",
		"message":      "The line that was logged, or what the guest said when it ended.",
		"module":       "The file of the module.",
		"name":         "The name of the job.",
		"reason":       "Why, in words; empty if there is nothing to say.",
		"server":       "The address of the server.",
		"status":       "What the host does, and each of its jobs.",
		"text":         "The sentence in words.",
		"time":         "When it was, or will be.",
		"timeZone":     "The time zone of the schedule: an IANA name such as Europe/Berlin, GMT+08:00 or the like, or Local for the zone of each host that runs it.",
		"type":         "What the module is: SIMPLE, DATAFLOW or SCRIPT.",
		"version":      "The version of the program.",

		"shardingTotalCount": "How many sharding items the job has.",

		"warnings": "What is wrong with it and does not keep it from running.",
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

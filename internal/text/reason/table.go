// Package reason has the reasons that hosts report: a code with arguments for programs, and a text for people,
// in English and Chinese. The English text comes from the table here, so code and text cannot differ; [Parse]
// finds the code of a text from a host that wrote none. Pure.
package reason

// Code names a reason. The set may grow; readers show the text of an unknown code.
type Code string

// The codes. The table has the text and the arguments of each.
const (
	// Reports that wrap another reason.
	BeforeIdle       Code = "before_idle"
	RunsAgain        Code = "runs_again"
	AndMisfireOff    Code = "and_misfire_off"
	AndOverlap       Code = "and_overlap"
	NextOwner        Code = "next_owner"
	Unfinished       Code = "unfinished"
	HostEndedBefore  Code = "host_ended_before"
	HandedBack       Code = "handed_back"
	NotStarted       Code = "not_started"
	WaitedForAttempt Code = "waited_for_attempt"
	HadDoneItsWork   Code = "had_done_its_work"
	ByForce          Code = "by_force"
	TimeWasUp        Code = "time_was_up"
	EndedByItself    Code = "ended_by_itself"
	WithoutSession   Code = "without_session"

	// Why something was skipped.
	ItemRuns                    Code = "item_runs"
	BackfillOverlap             Code = "backfill_overlap"
	ItemRunsNewer               Code = "item_runs_newer"
	RanWhenItCame               Code = "ran_when_it_came"
	QueueFull                   Code = "queue_full"
	QueueFullShared             Code = "queue_full_shared"
	MoreInstants                Code = "more_instants"
	EarlierFirst                Code = "earlier_first"
	CameUntaken                 Code = "came_untaken"
	RanOverlapSkip              Code = "ran_overlap_skip"
	RanNewestRuns               Code = "ran_newest_runs"
	WaitsForPermit              Code = "waits_for_permit"
	WaitsForRate                Code = "waits_for_rate"
	NotBefore                   Code = "not_before"
	BegunUnderRate              Code = "begun_under_rate"
	StartsLate                  Code = "starts_late"
	StartedLate                 Code = "started_late"
	BeforeFailed                Code = "before_failed"
	BeforeSucceeded             Code = "before_succeeded"
	BeforeEndedLater            Code = "before_ended_later"
	BeforeHadNoFire             Code = "before_had_no_fire"
	BeforeNotEnded              Code = "before_not_ended"
	WaitsForSlot                Code = "waits_for_slot"
	GuestStarts                 Code = "guest_starts"
	RunsElsewhere               Code = "runs_elsewhere"
	ItemUnwritable              Code = "item_unwritable"
	LastKnownStays              Code = "last_known_stays"
	ItemUnreadable              Code = "item_unreadable"
	ItemsUnreadable             Code = "items_unreadable"
	ItemsUnreadableOrUnwritable Code = "items_unreadable_or_unwritable"
	ItemsUnwritable             Code = "items_unwritable"
	StillMarked                 Code = "still_marked"
	ItemDisabled                Code = "item_disabled"
	ServerDisabled              Code = "server_disabled"
	DisabledUntilOver           Code = "disabled_until_over"
	WasDisabled                 Code = "was_disabled"
	Paused                      Code = "paused"
	FailedInARow                Code = "failed_in_a_row"
	HasRun                      Code = "has_run"
	ServerWasDisabled           Code = "server_was_disabled"
	DueWhileAway                Code = "due_while_away"
	FewerItems                  Code = "fewer_items"
	CountLowered                Code = "count_lowered"
	RunsAfterCrash              Code = "runs_after_crash"
	BegunElsewhere              Code = "begun_elsewhere"
	BegunAlready                Code = "begun_already"
	TakenBefore                 Code = "taken_before"
	AheadOfClock                Code = "ahead_of_clock"
	ScheduleChanged             Code = "schedule_changed"
	Held                        Code = "held"
	NoPermit                    Code = "no_permit"
	JavaMayRepeat               Code = "java_may_repeat"
	HeldSince                   Code = "held_since"
	Released                    Code = "released"
	AHost                       Code = "a_host"
	HostsInARow                 Code = "hosts_in_a_row"
	HostDied                    Code = "host_died"
	HostLeft                    Code = "host_left"
	HostLeftRunning             Code = "host_left_running"
	FailoverOff                 Code = "failover_off"
	MisfireOff                  Code = "misfire_off"
	BegunAnew                   Code = "begun_anew"
	JavaRanAgain                Code = "java_ran_again"
	NewerTrigger                Code = "newer_trigger"
	NewerFire                   Code = "newer_fire"
	NewerWhileSharding          Code = "newer_while_sharding"
	CameWithoutHost             Code = "came_without_host"
	TooOld                      Code = "too_old"
	NoOwnerMisfireOff           Code = "no_owner_misfire_off"
	NoOwnerCatchUpNone          Code = "no_owner_catch_up_none"
	NoOwnerNewestRun            Code = "no_owner_newest_run"
	CameUnseen                  Code = "came_unseen"
	DayExcluded                 Code = "day_excluded"
	DaysExcluded                Code = "days_excluded"
	Instant                     Code = "instant"
	Instants                    Code = "instants"
	StopsBeforeBegin            Code = "stops_before_begin"
	Unstarted                   Code = "unstarted"
	RemovedWhileRunning         Code = "removed_while_running"
	JobWas                      Code = "job_was"
	Removed                     Code = "removed"
	Stopped                     Code = "stopped"
	TakenOver                   Code = "taken_over"
	RecordedAs                  Code = "recorded_as"
	MovesAway                   Code = "moves_away"
	ThrowStopped                Code = "throw_stopped"
	PerhapsJava                 Code = "perhaps_java"
	LeaderRefuses               Code = "leader_refuses"
	NoModule                    Code = "no_module"
	JavaInJob                   Code = "java_in_job"
	OtherInstants               Code = "other_instants"
	NotFollowed                 Code = "not_followed"
	ClockUnreadable             Code = "clock_unreadable"
	ClockTooFar                 Code = "clock_too_far"
	TriggerUnreadable           Code = "trigger_unreadable"
	TriggerQueued               Code = "trigger_queued"
	ArgumentsUnfit              Code = "arguments_unfit"

	// How a backfill ended.
	BackfillWhole     Code = "backfill_whole"
	BackfillCancelled Code = "backfill_cancelled"
	BackfillRemoved   Code = "backfill_removed"

	// Why a run was ended.
	KilledBy          Code = "killed_by"
	Killed            Code = "killed"
	InstantCame       Code = "instant_came"
	TerminatedForNext Code = "terminated_for_next"

	// Why a host left a job.
	HostStops         Code = "host_stops"
	SessionEnded      Code = "session_ended"
	SessionOver       Code = "session_over"
	DefinitionGone    Code = "definition_gone"
	InstanceRemoved   Code = "instance_removed"
	JobRemoved        Code = "job_removed"
	StoppedByOperator Code = "stopped_by_operator"
	BeyondCeilings    Code = "beyond_ceilings"
	ModuleRefused     Code = "module_refused"

	// What a host has waited for.
	Waited                Code = "waited"
	AnswerOfRegistry      Code = "answer_of_registry"
	TurnOfCommits         Code = "turn_of_commits"
	RegistryShowsJob      Code = "registry_shows_job"
	RegistryRefuses       Code = "registry_refuses"
	ShardingWithoutLeader Code = "sharding_without_leader"
	ShardingByLeader      Code = "sharding_by_leader"
	ItemsMarkedElsewhere  Code = "items_marked_elsewhere"
	ItemsMove             Code = "items_move"
	IdleForTrigger        Code = "idle_for_trigger"
	ASlot                 Code = "a_slot"
	HostToTake            Code = "host_to_take"
	HostToTakeOfJava      Code = "host_to_take_of_java"

	// Why the items were sharded.
	InstancesChanged     Code = "instances_changed"
	NeverSharded         Code = "never_sharded"
	FlagSet              Code = "flag_set"
	CountChanged         Code = "count_changed"
	StrategyChanged      Code = "strategy_changed"
	JavaSharded          Code = "java_sharded"
	ServerEnabledNow     Code = "server_enabled_now"
	ServerDisabledNow    Code = "server_disabled_now"
	ServerOfJavaSwitched Code = "server_of_java_switched"
	EndedOnJava          Code = "ended_on_java"

	// What a host says of itself.
	ClockRight       Code = "clock_right"
	RecordAhead      Code = "record_ahead"
	ClockBehind      Code = "clock_behind"
	ClockAhead       Code = "clock_ahead"
	ClockPastCatchUp Code = "clock_past_catch_up"
	BehindRegistry   Code = "behind_registry"
	AheadOfRegistry  Code = "ahead_of_registry"
	LastHostDied     Code = "last_host_died"
	GuestUnstoppable Code = "guest_unstoppable"
	DeadManDue       Code = "dead_man_due"
	DeadManNotDue    Code = "dead_man_not_due"
	MachineRestarted Code = "machine_restarted"
	EndedWell        Code = "ended_well"
	EndUnknown       Code = "end_unknown"
	OtherJanitor     Code = "other_janitor"

	// Who made a change that no user made.
	FileOnHost  Code = "file_on_host"
	TheRegistry Code = "the_registry"

	// Listener: a listener ended. It has no text in the table: the text is the export, in the argument
	// listener, and the guest's message.
	Listener Code = "listener"
)

// row is a code with its texts. A place {name} in them takes the argument of that name; {reason} takes another
// reason, if that has a code.
type row struct {
	code Code
	// en is the text by which the code is also found; the first row that fits a text wins.
	en, zh string
	// old are English texts of hosts up to 0.1, with the same places or without.
	old []string
}

// table has all codes that have a text.
var table = []row{
	// Reports that wrap another reason.
	{code: BeforeIdle, en: "{reason} before the job was idle", zh: "{reason}，而作业尚未空闲"},
	{code: RunsAgain, en: "{reason}; it runs again right after", zh: "{reason}；之后立即再次运行"},
	{code: AndMisfireOff, en: "{reason}; misfire is off", zh: "{reason}；错过重做已关闭"},
	{code: AndOverlap, en: "{reason}; overlap is {overlap}", zh: "{reason}；“overlap”为“{overlap}”"},
	{code: NextOwner, en: "{reason}; the next owner of the item makes up for it if misfire is on", zh: "{reason}；若错过重做已开启，由分片的下一台主机补执行"},
	{code: Unfinished, en: "{reason}; the run is unfinished: it goes on elsewhere or after a restart if failover is on", zh: "{reason}；运行未完成：若失效转移已开启，则在其他主机或重启后继续"},
	{code: HostEndedBefore, en: "{reason}; its host ended before that", zh: "{reason}；其主机在此之前已结束"},
	{code: HandedBack, en: "{reason}; its host handed it back", zh: "{reason}；其主机已将它交还"},
	{code: NotStarted, en: "{reason}; it had not started", zh: "{reason}；它尚未启动"},
	{code: WaitedForAttempt, en: "{reason}; it waited for another attempt", zh: "{reason}；它在等待再次尝试"},
	{code: HadDoneItsWork, en: "{reason}; it had done its work", zh: "{reason}；它已完成工作"},
	{code: ByForce, en: "{reason}; its guest was stopped by force", zh: "{reason}；其客体被强制停止"},
	{code: TimeWasUp, en: "{reason}; its time was up", zh: "{reason}；其时间已到"},
	{code: EndedByItself, en: "{reason}; its guest ended by itself", zh: "{reason}；其客体自行结束"},
	{code: WithoutSession, en: "{reason}; it went while the host had no session", zh: "{reason}；当时主机没有会话"},

	// Why something was skipped.
	{code: ItemRuns, en: "the item still runs", zh: "分片仍在运行"},
	{code: BackfillOverlap, en: "the item still runs for {fire}, and the backfill skips what overlaps", zh: "分片仍在为 {fire} 运行，而此次补跑跳过重叠的执行"},
	{code: ItemRunsNewer, en: "the item still runs, and begins for a newer fire right after", zh: "分片仍在运行，结束后立即为更新的执行启动"},
	{code: RanWhenItCame, en: "the item still ran when it came", zh: "该时刻到来时分片仍在运行"},
	{code: QueueFull, en: "the item still runs, and {reason} wait already (queueMax)", zh: "分片仍在运行，且已有{reason}在等待（“queueMax”）"},
	{code: QueueFullShared, en: "the item still runs, and {reason} wait already (the host keeps no more for each item of its file; queueMax allows more)", zh: "分片仍在运行，且已有{reason}在等待（主机为同一文件的每个分片最多保留这么多；“queueMax”允许更多）"},
	{code: MoreInstants, en: "more than {n} instants", zh: "超过 {n} 个时刻"},
	{code: EarlierFirst, en: "the item has earlier instants to run; it runs for this one after them", zh: "分片还有更早的时刻要运行；之后再为本次运行"},
	{code: CameUntaken, en: "it came when no host took it; the item runs for it, after what came before", zh: "该时刻到来时没有主机处理；分片将在更早的时刻之后为其运行"},
	{code: RanOverlapSkip, en: "the item still ran, and overlap is skip", zh: "当时分片仍在运行，且“overlap”为“skip”"},
	{code: RanNewestRuns, en: "the item still ran, and the newest instant that came meanwhile runs instead", zh: "当时分片仍在运行；改为运行其间到来的最新时刻"},
	{code: WaitsForPermit, en: "it waits for a permit of limit {name}, whose maximum is {n}", zh: "它在等待并发上限 {name} 的许可，其最大值为 {n}"},
	{code: WaitsForRate, en: "it waits for its turn under rate {name}: at most {n} begin in {span}", zh: "它在等待速率 {name} 轮到它：{span} 内最多开始 {n} 个"},
	{code: NotBefore, en: "its guest asked to run again, and not before {time}", zh: "其客体要求再次运行，且不早于 {time}"},
	{code: BegunUnderRate, en: "others have begun under the same rate meanwhile", zh: "其间已有其他分片在同一速率下开始"},
	{code: StartsLate, en: "it would start {took} after the instant, and startWithin is {most}", zh: "它会在该时刻之后 {took} 才启动，而“startWithin”为 {most}"},
	{code: StartedLate, en: "it would have started {took} after the instant, and startWithin is {most}", zh: "它本会在该时刻之后 {took} 才启动，而“startWithin”为 {most}"},
	{code: BeforeFailed, en: "job {job} failed, and after demands {name}", zh: "作业“{job}”失败，而“after”要求“{name}”"},
	{code: BeforeSucceeded, en: "job {job} was a success, and after demands {name}", zh: "作业“{job}”成功，而“after”要求“{name}”"},
	{code: BeforeEndedLater, en: "the jobs before had ended a later fire by then, {fire}: the job does not go back", zh: "此前的作业当时已结束更晚的一次执行（{fire}）：本作业不再回头执行"},
	{code: BeforeHadNoFire, en: "job {job} had no fire for it", zh: "作业“{job}”没有该时刻的执行"},
	{code: BeforeNotEnded, en: "job {job} had not ended {took} after the instant", zh: "作业“{job}”在该时刻之后 {took} 仍未结束"},
	{code: WaitsForSlot, en: "the item has waited {took} for a slot", zh: "分片已等待槽位 {took}"},
	{code: GuestStarts, en: "the item's guest is being started", zh: "正在启动分片的客体"},
	{code: RunsElsewhere, en: "the item is marked as running elsewhere", zh: "分片被标记为正在其他主机上运行"},
	{code: ItemUnwritable, en: "the item cannot be written: {reason}", zh: "无法写入该分片：{reason}"},
	{code: LastKnownStays, en: "what was last known of the job stays in force: {reason}", zh: "作业沿用最后已知的状态：{reason}"},
	{code: ItemUnreadable, en: "the item cannot be read: {reason}", zh: "无法读取该分片：{reason}"},
	{code: ItemsUnreadable, en: "items {items} cannot be read, the others go on: {reason}", zh: "无法读取分片 {items}，其余分片继续执行：{reason}"},
	{code: ItemsUnreadableOrUnwritable, en: "items {items} cannot be read or written, the others go on: {reason}", zh: "无法读取或写入分片 {items}，其余分片继续执行：{reason}"},
	{code: ItemsUnwritable, en: "items {items} cannot be written, the others go on: {reason}", zh: "无法写入分片 {items}，其余分片继续执行：{reason}"},
	{code: StillMarked, en: "the item is still marked as running", zh: "分片仍被标记为正在运行"},
	{code: ItemDisabled, en: "the item is paused", zh: "分片已暂停", old: []string{"the item is disabled"}},
	{code: ServerDisabled, en: "the job is paused on this server", zh: "该作业在此服务器上已暂停", old: []string{"this server is disabled for the job"}},
	{code: DisabledUntilOver, en: "the time is over until which it was paused", zh: "暂停的时间已到", old: []string{"the time is over until which it was disabled"}},
	{code: WasDisabled, en: "it was due while the item, or the job on all servers, was paused", zh: "到时该分片已暂停，或该作业在所有服务器上已暂停", old: []string{"it was due while the item, or the job on all servers, was disabled"}},
	{code: Paused, en: "the job is paused by {policy}: {reason}", zh: "作业已按“{policy}”暂停：{reason}"},
	{code: FailedInARow, en: "{runs} of item {n} in a row failed, the last one with {outcome}", zh: "分片 {n} 连续失败（{runs}），最后一次的结果为 {outcome}"},
	{code: HasRun, en: "it has run for {reason}", zh: "已为{reason}运行"},
	{code: ServerWasDisabled, en: "the job was paused on this server", zh: "该作业当时在此服务器上已暂停", old: []string{"this server was disabled for the job"}},
	{code: DueWhileAway, en: "it was due while the job was paused on this host, or this host was away from it", zh: "到时该作业在此主机上已暂停，或此主机不在该作业中", old: []string{"it was due while this host was disabled for the job or away from it"}},
	{code: FewerItems, en: "the sharding total count is {n} now", zh: "分片总数现为 {n}"},
	{code: CountLowered, en: "the sharding total count was lowered to {n} before the item began", zh: "在分片启动之前，分片总数已降为 {n}"},
	{code: RunsAfterCrash, en: "another host is running the item after a crash", zh: "崩溃之后，其他主机正在运行该分片"},
	{code: BegunElsewhere, en: "the item has been begun by another host since", zh: "此后该分片已由其他主机启动"},
	{code: BegunAlready, en: "the instant has been begun already", zh: "该时刻已经启动过"},
	{code: TakenBefore, en: "the instant was taken before, as the item's record says", zh: "按分片的记录，该时刻之前已被处理"},
	{code: AheadOfClock, en: "the instant is later than the registry's clock", zh: "该时刻晚于注册中心的时钟"},
	{code: ScheduleChanged, en: "the schedule was changed before the instant", zh: "调度在该时刻之前已被更改"},
	{code: Held, en: "the item is held back", zh: "分片被扣留"},
	{code: NoPermit, en: "the item has no permit of its limit any more", zh: "分片不再有其并发上限的许可"},
	{code: JavaMayRepeat, en: "a Java host may be about to run the item again", zh: "可能有 Java 主机即将再次运行该分片"},
	{code: HeldSince, en: "the item is held back since {at}: {reason} died in its runs ({hosts}); {command} lets it run again", zh: "分片自 {at} 起被扣留：{reason}在运行它时崩溃（{hosts}）；用“{command}”可让它再次运行"},
	{code: Released, en: "an operator released it", zh: "操作者已释放它"},
	{code: AHost, en: "a host", zh: "一台主机"},
	{code: HostsInARow, en: "{n} hosts in a row", zh: "连续 {n} 台主机"},
	{code: HostDied, en: "its host {host} died while it ran, and {reason}", zh: "其主机 {host} 在运行它时崩溃，而{reason}"},
	{code: HostLeft, en: "its host {host} left the job while it ran, and {reason}", zh: "其主机 {host} 在运行它时离开了作业，而{reason}"},
	{code: HostLeftRunning, en: "its host {host} left the job while it ran", zh: "其主机 {host} 在运行它时离开了作业"},
	{code: FailoverOff, en: "failover is off", zh: "失效转移已关闭"},
	{code: MisfireOff, en: "misfire is off", zh: "错过重做已关闭"},
	{code: BegunAnew, en: "it has been begun anew since", zh: "此后它已重新启动"},
	{code: JavaRanAgain, en: "a Java host has run it again", zh: "一台 Java 主机已再次运行它"},
	{code: NewerTrigger, en: "trigger {n} came before this one had begun here: it counts for both", zh: "触发 {n} 在此次触发于此启动之前到来：由它代表两者"},
	{code: NewerFire, en: "a newer fire is due, {fire}: it stands for this one", zh: "更新的一次执行已到时刻（{fire}）：由它代替本次"},
	{code: NewerWhileSharding, en: "the items were being sharded, and a newer instant came due: it stands for this one", zh: "当时正在分片，而更新的时刻已到：由它代替本次"},
	{code: CameWithoutHost, en: "{reason} from here on came due while no host had the item; one catch-up runs instead, for {at}", zh: "自此有{reason}在没有主机拥有该分片时到来；改为一次补执行，对应 {at}"},
	{code: TooOld, en: "no host had the item when it was due, and that is longer ago than {took}", zh: "到时没有主机拥有该分片，且距今已超过 {took}"},
	{code: NoOwnerMisfireOff, en: "no host had the item when it was due; misfire is off ({reason} from here on)", zh: "到时没有主机拥有该分片；错过重做已关闭（自此有{reason}）"},
	{code: NoOwnerCatchUpNone, en: "no host had the item when it was due; catchUp is none ({reason} from here on)", zh: "到时没有主机拥有该分片；“catchUp”为“none”（自此有{reason}）"},
	{code: NoOwnerNewestRun, en: "no host had the item when it was due, and of what was missed the newest {reason} run", zh: "到时没有主机拥有该分片，而错过的时刻中只运行最新的{reason}"},
	{code: CameUnseen, en: "{reason} from here on came due before this host looked for them (it was overloaded, halted or without the registry, or its clock was set); the fire at {at} runs instead", zh: "自此有{reason}在此主机检查之前到来（主机过载、暂停、无法访问注册中心或时钟被调整）；改为运行 {at} 的执行"},
	{code: DayExcluded, en: "a calendar of the job excludes the day", zh: "作业的日历排除了这一天"},
	{code: DaysExcluded, en: "calendars of the job exclude the days of {reason} from here on", zh: "自此作业的日历排除了{reason}所在的日子"},
	{code: Instant, en: "{n} instant", zh: " {n} 个时刻"},
	{code: Instants, en: "{n} instants", zh: " {n} 个时刻"},
	{code: StopsBeforeBegin, en: "the host stops: it was handed back before it began", zh: "主机正在停止：它在开始之前已交还"},
	{code: Unstarted, en: "handed back unstarted: {reason}", zh: "未启动即交还：{reason}"},
	{code: RemovedWhileRunning, en: "the job was removed while the item ran", zh: "分片运行期间作业被移除"},
	{code: JobWas, en: "the job was {reason}", zh: "作业已被{reason}"},
	{code: Removed, en: "removed", zh: "移除"},
	{code: Stopped, en: "stopped", zh: "停止"},
	{code: TakenOver, en: "the item was taken over by another host before its completion could be written", zh: "在写入完成记录之前，分片已被其他主机接管"},
	{code: RecordedAs, en: "other hosts took this host for dead and recorded the run as {outcome} before its completion could be written", zh: "其他主机认为此主机已崩溃，并在其完成记录写入之前将该运行记录为 {outcome}"},
	{code: MovesAway, en: "the item moves to another host, and the run goes on there", zh: "分片迁移到其他主机，并在那里继续运行"},
	{code: ThrowStopped, en: "the item failed, and the error handler THROW stops the catch-up", zh: "分片失败，错误处理方式“THROW”停止了补执行"},
	{code: PerhapsJava, en: "from here on the item may have belonged to a Java host; whether that ran it is not known", zh: "自此该分片可能属于一台 Java 主机；不清楚它是否运行过"},
	{code: LeaderRefuses, en: "the leader, {host}, refuses the configuration: it shards {n} items, and the configuration has {m}; see its status", zh: "主节点 {host} 拒绝该配置：它按 {n} 个分片划分，而配置中有 {m} 个；请查看其状态"},
	{code: NoModule, en: "no module: {reason}", zh: "没有模块：{reason}"},
	{code: JavaInJob, en: "a Java host ({host}) is in the job, and {reason}", zh: "作业中有一台 Java 主机（{host}）：{reason}"},
	{code: OtherInstants, en: "it would not fire at the same instants: {reason}", zh: "它不会在相同的时刻触发：{reason}"},
	{code: NotFollowed, en: "it does not follow {settings}", zh: "它不遵循：{settings}"},
	{code: ClockUnreadable, en: "the registry's clock cannot be read, and maxTimeDiffSeconds is {n}: {reason}", zh: "无法读取注册中心的时钟，而“maxTimeDiffSeconds”为 {n}：{reason}"},
	{code: ClockTooFar, en: "this host's clock is {took} from the registry's; maxTimeDiffSeconds is {n}", zh: "此主机的时钟与注册中心相差 {took}；“maxTimeDiffSeconds”为 {n}"},
	{code: TriggerQueued, en: "the trigger was queued: {reason}", zh: "触发曾在排队：{reason}"},
	{code: ArgumentsUnfit, en: "the arguments do not fit the job: {reason}", zh: "参数不符合作业的声明：{reason}"},
	{code: BackfillWhole, en: "all of its {n} instants were given out", zh: "其全部 {n} 个时刻均已发出"},
	{code: BackfillCancelled, en: "{who} has cancelled it: {n} of its {total} instants do not run", zh: "{who} 已将其取消：{total} 个时刻中有 {n} 个不再运行"},
	{code: BackfillRemoved, en: "the job is removed: {n} of its {total} instants do not run", zh: "作业已移除：{total} 个时刻中有 {n} 个不再运行"},
	{code: TriggerUnreadable, en: "node trigger cannot be read: it is not known which items are to run", zh: "无法读取触发节点：不清楚应运行哪些分片"},

	// Why a run was ended.
	{code: KilledBy, en: "an operator killed it ({who}) at {at}", zh: "操作者（{who}）于 {at} 终止了它"},
	{code: Killed, en: "an operator killed it at {at}", zh: "操作者于 {at} 终止了它"},
	{code: InstantCame, en: "instant {fire} has come, and overlap is {overlap}", zh: "时刻 {fire} 已到，而“overlap”为“{overlap}”"},
	{code: TerminatedForNext, en: "the next instant has come, and overlap is terminate", zh: "下一时刻已到，而“overlap”为“terminate”"},

	// Why a host left a job.
	{code: HostStops, en: "the host is stopping", zh: "主机正在停止"},
	{code: SessionEnded, en: "the session ended", zh: "会话已结束"},
	{code: SessionOver, en: "its session with the registry has ended", zh: "其与注册中心的会话已结束"},
	{code: DefinitionGone, en: "its definition is gone", zh: "其定义文件已不存在"},
	{code: InstanceRemoved, en: "its instance was removed by an operator", zh: "其实例已被操作者移除"},
	{code: JobRemoved, en: "removed from the registry; '{command}' brings it back", zh: "已从注册中心移除；用“{command}”可恢复", old: []string{"removed from the registry"}},
	{code: StoppedByOperator, en: "stopped by an operator; '{command}' runs it again", zh: "已被操作者停止；用“{command}”可让它再次运行"},
	{code: BeyondCeilings, en: "the configuration is beyond this host's ceilings", zh: "配置超出此主机的上限"},
	{code: ModuleRefused, en: "its module {reason}", zh: "其模块有问题：{reason}"},

	// What a host has waited for.
	{code: Waited, en: "waited {took} for {reason}", zh: "已等待 {took}：{reason}"},
	{code: AnswerOfRegistry, en: "an answer of the registry", zh: "注册中心的应答"},
	{code: TurnOfCommits, en: "its turn among this host's commits; it goes on waiting: the registry is slow", zh: "轮到它在此主机上提交；继续等待：注册中心缓慢"},
	{code: RegistryShowsJob, en: "the registry to show the job; nothing begins until it does", zh: "注册中心显示该作业；在此之前不启动任何任务"},
	{code: RegistryRefuses, en: "the registry, which refuses: {reason}; it is tried again each second", zh: "注册中心，它拒绝了：{reason}；每秒重试一次"},
	{code: ShardingWithoutLeader, en: "the items to be sharded, and the job has no leader; see that the job is on a host that is not paused and not in error", zh: "分片，而作业没有主节点；请确认有一台拥有该作业的主机未暂停且没有错误", old: []string{"the items to be sharded, and the job has no leader; see that a host with the job is enabled and not in error"}},
	{code: ShardingByLeader, en: "the items to be sharded by the leader, {host}; see its log; restart its host if it makes no progress", zh: "由主节点 {host} 分片；请查看其日志；若没有进展，请重启其主机"},
	{code: ItemsMarkedElsewhere, en: "items {items}, which are due and marked as running elsewhere; see who runs them: {command}; delete marks that no host owns", zh: "分片 {items}，它们应当执行，而被标记为正在其他主机上运行；用“{command}”查看由谁运行；请删除没有主机拥有的标记"},
	{code: ItemsMove, en: "items {items} to end where they run: they go to other hosts then; see who runs them: {command}; the job's timeout ends them, or a restart of that host", zh: "分片 {items} 在当前主机上结束，之后它们转到其他主机；用“{command}”查看由谁运行；作业的超时或重启该主机可结束它们"},
	{code: IdleForTrigger, en: "the job to be idle here, to serve a trigger; items that run are shown by: {command}", zh: "作业在此空闲，以处理触发；用“{command}”查看运行中的分片"},
	{code: ASlot, en: "a slot: the host has {n} for all jobs, and this job may have {m}; see what runs: {command}; a timeout ends items that go on for ever", zh: "空闲槽位：主机共有 {n} 个，该作业最多用 {m} 个；用“{command}”查看运行中的分片；设置超时可结束不停运行的分片"},
	{code: HostToTake, en: "a host to take what was begun by hosts that are gone: {hosts}; it takes a host with the module where the job is not paused, and items that are not paused", zh: "有主机接管已消失的主机所启动的分片：{hosts}；需要一台未暂停且有该模块的主机，以及未暂停的分片", old: []string{"a host to take what was begun by hosts that are gone: {hosts}; it takes an enabled host with the module, and items that are not disabled"}},
	{code: HostToTakeOfJava, en: "a host to take items {items}, which a Java host has marked as crashed; it takes a host with the module where the job is not paused", zh: "有主机接管 Java 主机标记为崩溃的分片 {items}；需要一台未暂停且有该模块的主机", old: []string{"a host to take items {items}, which a Java host has marked as crashed; it takes an enabled host with the module"}},

	// Why the items were sharded.
	{code: InstancesChanged, en: "instances changed", zh: "实例有变化"},
	{code: NeverSharded, en: "items were never sharded", zh: "从未分片", old: []string{"items were never divided"}},
	{code: FlagSet, en: "asked for by the flag", zh: "按分片标志的要求"},
	{code: CountChanged, en: "sharding total count changed from {n} to {m}", zh: "分片总数由 {n} 变为 {m}"},
	{code: StrategyChanged, en: "strategy changed from {n} to {m}", zh: "分片策略由“{n}”变为“{m}”"},
	{code: JavaSharded, en: "a Java leader sharded the items", zh: "由 Java 主节点分片"},
	{code: ServerEnabledNow, en: "this server was resumed", zh: "此服务器已恢复", old: []string{"this server was enabled"}},
	{code: ServerDisabledNow, en: "this server was paused", zh: "此服务器已暂停", old: []string{"this server was disabled"}},
	{code: ServerOfJavaSwitched, en: "the server of {host} was paused or resumed", zh: "{host} 的服务器已暂停或恢复", old: []string{"the server of {host} was disabled or enabled"}},
	{code: EndedOnJava, en: "item {n} has ended on its Java host", zh: "分片 {n} 已在其 Java 主机上结束"},

	// What a host says of itself.
	{code: ClockRight, en: "this host's clock is {reason}, which is within {took} again", zh: "此主机的时钟{reason}，重新在允许的 {took} 之内"},
	{code: RecordAhead, en: "the item's record named {at}, which is ahead of the registry's clock and of this host's: a clock was wrong, or the record was edited; the item runs by the clocks again", zh: "分片的记录为 {at}，晚于注册中心和此主机的时钟：时钟曾出错，或记录被修改；分片重新按时钟运行"},
	{code: ClockBehind, en: "this host's clock is {reason}, and may be {took}: what it begins is late, and nothing begins before its clock has come to what was begun", zh: "此主机的时钟{reason}，允许 {took}：由它启动的都会延迟，而且在其时钟到达已启动的时刻之前不会启动任何任务"},
	{code: ClockAhead, en: "this host's clock is {reason}, and may be {took}: nothing begins here earlier than {early} before its instant by the registry's clock", zh: "此主机的时钟{reason}，允许 {took}：按注册中心的时钟，这里不会早于该时刻前 {early} 启动任何任务"},
	{code: ClockPastCatchUp, en: "this host's clock is {reason}, more than the catch-up window of {took}: of what was due in the meantime only the newest instant runs here when the clock is right", zh: "此主机的时钟{reason}，超过补执行期限 {took}：时钟恢复正确后，其间到来的时刻中只有最新的会在这里运行"},
	{code: BehindRegistry, en: "{took} behind the registry's", zh: "比注册中心慢 {took}"},
	{code: AheadOfRegistry, en: "{took} ahead of the registry's", zh: "比注册中心快 {took}"},
	{code: LastHostDied, en: "the last host here (pid {pid}, started {at}) did not end well: {reason}", zh: "这里的上一个主机进程（进程号 {pid}，启动于 {at}）没有正常结束：{reason}"},
	{code: GuestUnstoppable, en: "it ended itself, because a guest of a lost session could not be stopped (exit code 3)", zh: "它自行结束，因为无法停止已丢失会话的客体（退出码 3）"},
	{code: DeadManDue, en: "its dead man's timer was due {took} before this start: it was killed or crashed, or the timer ended it, because it was frozen or a guest outlived the session", zh: "其看门狗定时器在本次启动前 {took} 到期：它被终止或崩溃，或者因被冻结或有客体在会话结束后仍在运行而被定时器结束"},
	{code: DeadManNotDue, en: "its dead man's timer was not due: it was killed, for want of memory for example, or it crashed", zh: "其看门狗定时器未到期：它被终止（例如内存不足），或者崩溃了"},
	{code: MachineRestarted, en: "the machine was started again since", zh: "此后机器重新启动过"},
	{code: EndedWell, en: "it ended by itself", zh: "它自行结束"},
	{code: EndUnknown, en: "unknown: its timer was due long before this start, or the record does not say enough", zh: "原因未知：其定时器早在本次启动之前已到期，或记录不足"},
	{code: OtherJanitor, en: "another host is", zh: "由另一台主机负责"},

	// Who made a change that no user made.
	{code: FileOnHost, en: "file {file} on host {host}", zh: "主机 {host} 上的文件 {file}"},
	{code: TheRegistry, en: "the registry", zh: "注册中心"},
}

// rows has the rows of the table by code.
var rows = byCode()

func byCode() map[Code]*row {
	m := make(map[Code]*row, len(table))
	for _, r := range table {
		m[r.code] = &r
	}
	return m
}

package explain

import (
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/internal/text/i18n"
)

// reports are what hosts say in words of their own, the text of which an event has: those
// that are the same each time but for what stands in their places. The first that fits a
// text counts.
//
// A place {reason} has a report in it. What fits none is quoted as it is.
var reports = []map[i18n.Language]string{
	// Reports with another one in front.
	{en: "{reason} before the job was idle", zh: "{reason}，而作业尚未空闲"},
	{en: "{reason}; it runs again right after", zh: "{reason}；之后立即再次运行"},
	{en: "{reason}; misfire is off", zh: "{reason}；错过重做已关闭"},
	{en: "{reason}; overlap is {overlap}", zh: "{reason}；“overlap”为“{overlap}”"},
	{en: "{reason}; the next owner of the item makes up for it if misfire is on", zh: "{reason}；若错过重做已开启，由分片的下一台主机补执行"},
	{en: "{reason}; the run is unfinished: it goes on elsewhere or after a restart if failover is on", zh: "{reason}；运行未完成：若失效转移已开启，则在其他主机或重启后继续"},
	{en: "{reason}; its host ended before that", zh: "{reason}；其主机在此之前已结束"},
	{en: "{reason}; its host handed it back", zh: "{reason}；其主机已将它交还"},
	{en: "{reason}; it had not started", zh: "{reason}；它尚未启动"},
	{en: "{reason}; it waited for another attempt", zh: "{reason}；它在等待再次尝试"},
	{en: "{reason}; it had done its work", zh: "{reason}；它已完成工作"},
	{en: "{reason}; its guest was stopped by force", zh: "{reason}；其客体被强制停止"},
	{en: "{reason}; its time was up", zh: "{reason}；其时间已到"},
	{en: "{reason}; its guest ended by itself", zh: "{reason}；其客体自行结束"},
	{en: "{reason}; it went while the host had no session", zh: "{reason}；当时主机没有会话"},

	// Why something was skipped.
	{en: "the item still runs", zh: "分片仍在运行"},
	{en: "the item still runs, and begins for a newer fire right after", zh: "分片仍在运行，结束后立即为更新的执行启动"},
	{en: "the item still runs, and {reason} wait already (queueMax)", zh: "分片仍在运行，且已有{reason}在等待（“queueMax”）"},
	{en: "the item still runs, and {reason} wait already (the host keeps no more for each item of its file; queueMax allows more)", zh: "分片仍在运行，且已有{reason}在等待（主机为同一文件的每个分片最多保留这么多；“queueMax”允许更多）"},
	{en: "more than {n} instants", zh: "超过 {n} 个时刻"},
	{en: "the item has earlier instants to run; it runs for this one after them", zh: "分片还有更早的时刻要运行；之后再为本次运行"},
	{en: "the item still ran, and overlap is skip", zh: "当时分片仍在运行，且“overlap”为“skip”"},
	{en: "the item still ran, and the newest instant that came meanwhile runs instead", zh: "当时分片仍在运行；改为运行其间到来的最新时刻"},
	{en: "its guest asked to run again, and not before {time}", zh: "其客体要求再次运行，且不早于 {time}"},
	{en: "it waits for its turn under rate {name}: at most {n} begin in {span}", zh: "它在等待速率 {name} 轮到它：{span} 内最多开始 {n} 个"},
	{en: "it waits for a permit of limit {name}, whose maximum is {n}", zh: "它在等待并发上限 {name} 的许可，其最大值为 {n}"},
	{en: "it would start {took} after the instant, and startWithin is {most}", zh: "它会在该时刻之后 {took} 才启动，而“startWithin”为 {most}"},
	{en: "it would have started {took} after the instant, and startWithin is {most}", zh: "它本会在该时刻之后 {took} 才启动，而“startWithin”为 {most}"},
	{en: "job {job} failed, and after demands {name}", zh: "作业“{job}”失败，而“after”要求“{name}”"},
	{en: "job {job} was a success, and after demands {name}", zh: "作业“{job}”成功，而“after”要求“{name}”"},
	{en: "job {job} had no fire for it", zh: "作业“{job}”没有该时刻的执行"},
	{en: "job {job} had not ended {took} after the instant", zh: "作业“{job}”在该时刻之后 {took} 仍未结束"},
	{en: "the item has waited {took} for a slot", zh: "分片已等待槽位 {took}"},
	{en: "the item's guest is being started", zh: "正在启动分片的客体"},
	{en: "the item is marked as running elsewhere", zh: "分片被标记为正在其他主机上运行"},
	{en: "the item cannot be written: {reason}", zh: "无法写入该分片：{reason}"},
	{en: "what was last known of the job stays in force: {reason}", zh: "作业沿用最后已知的状态：{reason}"},
	{en: "the item cannot be read: {reason}", zh: "无法读取该分片：{reason}"},
	{en: "items {items} cannot be read, the others go on: {reason}", zh: "无法读取分片 {items}，其余分片继续执行：{reason}"},
	{en: "items {items} cannot be read or written, the others go on: {reason}", zh: "无法读取或写入分片 {items}，其余分片继续执行：{reason}"},
	{en: "items {items} cannot be written, the others go on: {reason}", zh: "无法写入分片 {items}，其余分片继续执行：{reason}"},
	{en: "the item is still marked as running", zh: "分片仍被标记为正在运行"},
	{en: "the item is disabled", zh: "分片已暂停"},
	{en: "this server is disabled for the job", zh: "该作业在此服务器上已暂停"},
	{en: "the time is over until which it was disabled", zh: "暂停的时间已到"},
	{en: "it was due while the item, or the job on all servers, was disabled", zh: "到时该分片已暂停，或该作业在所有服务器上已暂停"},
	{en: "the job is paused by {policy}: {reason}", zh: "作业已按“{policy}”暂停：{reason}"},
	{en: "{runs} of item {n} in a row failed, the last one with {outcome}", zh: "分片 {n} 连续失败（{runs}），最后一次的结果为 {outcome}"},
	{en: "it has run for {reason}", zh: "已为{reason}运行"},
	{en: "this server was disabled for the job", zh: "该作业当时在此服务器上已暂停"},
	{en: "it was due while this host was disabled for the job or away from it", zh: "到时该作业在此主机上已暂停，或此主机不在该作业中"},
	{en: "the sharding total count is {n} now", zh: "分片总数现为 {n}"},
	{en: "the sharding total count was lowered to {n} before the item began", zh: "在分片启动之前，分片总数已降为 {n}"},
	{en: "another host is running the item after a crash", zh: "崩溃之后，其他主机正在运行该分片"},
	{en: "the item has been begun by another host since", zh: "此后该分片已由其他主机启动"},
	{en: "the instant has been begun already", zh: "该时刻已经启动过"},
	{en: "the instant is later than the registry's clock", zh: "该时刻晚于注册中心的时钟"},
	{en: "the schedule was changed before the instant", zh: "调度在该时刻之前已被更改"},
	{en: "the item is held back", zh: "分片被扣留"},
	{en: "the item is held back since {at}: {reason} died in its runs ({hosts}); {command} lets it run again", zh: "分片自 {at} 起被扣留：{reason}在运行它时崩溃（{hosts}）；用“{command}”可让它再次运行"},
	{en: "a host", zh: "一台主机"},
	{en: "{n} hosts in a row", zh: "连续 {n} 台主机"},
	{en: "its host {host} died while it ran, and {reason}", zh: "其主机 {host} 在运行它时崩溃，而{reason}"},
	{en: "its host {host} left the job while it ran, and {reason}", zh: "其主机 {host} 在运行它时离开了作业，而{reason}"},
	{en: "failover is off", zh: "失效转移已关闭"},
	{en: "misfire is off", zh: "错过重做已关闭"},
	{en: "it has been begun anew since", zh: "此后它已重新启动"},
	{en: "a Java host has run it again", zh: "一台 Java 主机已再次运行它"},
	{en: "trigger {n} came before this one had begun here: it counts for both", zh: "触发 {n} 在此次触发于此启动之前到来：由它代表两者"},
	{en: "a newer fire is due, {fire}: it stands for this one", zh: "更新的一次执行已到时刻（{fire}）：由它代替本次"},
	{en: "the items were being sharded, and a newer instant came due: it stands for this one", zh: "当时正在分片，而更新的时刻已到：由它代替本次"},
	{en: "{reason} from here on came due while no host had the item; one catch-up runs instead, for {at}", zh: "自此有{reason}在没有主机拥有该分片时到来；改为一次补执行，对应 {at}"},
	{en: "no host had the item when it was due, and that is longer ago than {took}", zh: "到时没有主机拥有该分片，且距今已超过 {took}"},
	{en: "no host had the item when it was due; misfire is off ({reason} from here on)", zh: "到时没有主机拥有该分片；错过重做已关闭（自此有{reason}）"},
	{en: "no host had the item when it was due; catchUp is none ({reason} from here on)", zh: "到时没有主机拥有该分片；“catchUp”为“none”（自此有{reason}）"},
	{en: "no host had the item when it was due, and of what was missed the newest {reason} run", zh: "到时没有主机拥有该分片，而错过的时刻中只运行最新的{reason}"},
	{en: "{reason} from here on came due before this host looked for them (it was overloaded, halted or without the registry, or its clock was set); the fire at {at} runs instead", zh: "自此有{reason}在此主机检查之前到来（主机过载、暂停、无法访问注册中心或时钟被调整）；改为运行 {at} 的执行"},
	{en: "{n} instant", zh: " {n} 个时刻"},
	{en: "{n} instants", zh: " {n} 个时刻"},
	{en: "the host stops: it was handed back before it began", zh: "主机正在停止：它在开始之前已交还"},
	{en: "handed back unstarted: {reason}", zh: "未启动即交还：{reason}"},
	{en: "the job was removed while the item ran", zh: "分片运行期间作业被移除"},
	{en: "the job was {reason}", zh: "作业已被{reason}"},
	{en: "removed", zh: "移除"},
	{en: "stopped", zh: "停止"},
	{en: "the item was taken over by another host before its completion could be written", zh: "在写入完成记录之前，分片已被其他主机接管"},
	{en: "other hosts took this host for dead and recorded the run as {outcome} before its completion could be written", zh: "其他主机认为此主机已崩溃，并在其完成记录写入之前将该运行记录为 {outcome}"},
	{en: "the item moves to another host, and the run goes on there", zh: "分片迁移到其他主机，并在那里继续运行"},
	{en: "the item failed, and the error handler THROW stops the catch-up", zh: "分片失败，错误处理方式“THROW”停止了补执行"},
	{en: "from here on the item may have belonged to a Java host; whether that ran it is not known", zh: "自此该分片可能属于一台 Java 主机；不清楚它是否运行过"},
	{en: "the leader, {host}, refuses the configuration: it shards {n} items, and the configuration has {m}; see its status", zh: "主节点 {host} 拒绝该配置：它按 {n} 个分片划分，而配置中有 {m} 个；请查看其状态"},
	{en: "no module: {reason}", zh: "没有模块：{reason}"},
	{en: "a Java host ({host}) is in the job, and {reason}", zh: "作业中有一台 Java 主机（{host}）：{reason}"},
	{en: "it would not fire at the same instants: {reason}", zh: "它不会在相同的时刻触发：{reason}"},
	{en: "it does not follow {settings}", zh: "它不遵循：{settings}"},
	{en: "the registry's clock cannot be read, and maxTimeDiffSeconds is {n}: {reason}", zh: "无法读取注册中心的时钟，而“maxTimeDiffSeconds”为 {n}：{reason}"},
	{en: "this host's clock is {took} from the registry's; maxTimeDiffSeconds is {n}", zh: "此主机的时钟与注册中心相差 {took}；“maxTimeDiffSeconds”为 {n}"},
	{en: "the trigger was queued: {reason}", zh: "触发曾在排队：{reason}"},
	{en: "the arguments do not fit the job: {reason}", zh: "参数不符合作业的声明：{reason}"},
	{en: "node trigger cannot be read: it is not known which items are to run", zh: "无法读取触发节点：不清楚应运行哪些分片"},

	// Why a run was ended.
	{en: "an operator killed it ({who}) at {at}", zh: "操作者（{who}）于 {at} 终止了它"},
	{en: "an operator killed it at {at}", zh: "操作者于 {at} 终止了它"},

	{en: "instant {fire} has come, and overlap is {overlap}", zh: "时刻 {fire} 已到，而“overlap”为“{overlap}”"},
	{en: "the next instant has come, and overlap is terminate", zh: "下一时刻已到，而“overlap”为“terminate”"},

	// Why a host left a job.
	{en: "the host is stopping", zh: "主机正在停止"},
	{en: "the session ended", zh: "会话已结束"},
	{en: "its definition is gone", zh: "其定义文件已不存在"},
	{en: "its instance was removed by an operator", zh: "其实例已被操作者移除"},
	{en: "removed from the registry; '{command}' brings it back", zh: "已从注册中心移除；用“{command}”可恢复"},
	{en: "the configuration is beyond this host's ceilings", zh: "配置超出此主机的上限"},
	{en: "its module {reason}", zh: "其模块有问题：{reason}"},

	// What a host has waited for.
	{en: "waited {took} for {reason}", zh: "已等待 {took}：{reason}"},
	{en: "an answer of the registry", zh: "注册中心的应答"},
	{en: "its turn among this host's commits; it goes on waiting: the registry is slow", zh: "轮到它在此主机上提交；继续等待：注册中心缓慢"},
	{en: "the registry to show the job; nothing begins until it does", zh: "注册中心显示该作业；在此之前不启动任何任务"},
	{en: "the registry, which refuses: {reason}; it is tried again each second", zh: "注册中心，它拒绝了：{reason}；每秒重试一次"},
	{en: "the items to be sharded, and the job has no leader; see that a host with the job is enabled and not in error", zh: "分片，而作业没有主节点；请确认有一台拥有该作业的主机未暂停且没有错误"},
	{en: "the items to be sharded by the leader, {host}; see its log; restart its host if it makes no progress", zh: "由主节点 {host} 分片；请查看其日志；若没有进展，请重启其主机"},
	{en: "items {items}, which are due and marked as running elsewhere; see who runs them: {command}; delete marks that no host owns", zh: "分片 {items}，它们应当执行，而被标记为正在其他主机上运行；用“{command}”查看由谁运行；请删除没有主机拥有的标记"},
	{en: "items {items} to end where they run: they go to other hosts then; see who runs them: {command}; the job's timeout ends them, or a restart of that host", zh: "分片 {items} 在当前主机上结束，之后它们转到其他主机；用“{command}”查看由谁运行；作业的超时或重启该主机可结束它们"},
	{en: "the job to be idle here, to serve a trigger; items that run are shown by: {command}", zh: "作业在此空闲，以处理触发；用“{command}”查看运行中的分片"},
	{en: "a slot: the host has {n} for all jobs, and this job may have {m}; see what runs: {command}; a timeout ends items that go on for ever", zh: "空闲槽位：主机共有 {n} 个，该作业最多用 {m} 个；用“{command}”查看运行中的分片；设置超时可结束不停运行的分片"},
	{en: "a host to take what was begun by hosts that are gone: {hosts}; it takes an enabled host with the module, and items that are not disabled", zh: "有主机接管已消失的主机所启动的分片：{hosts}；需要一台未暂停且有该模块的主机，以及未暂停的分片"},
	{en: "a host to take items {items}, which a Java host has marked as crashed; it takes an enabled host with the module", zh: "有主机接管 Java 主机标记为崩溃的分片 {items}；需要一台未暂停且有该模块的主机"},

	// Why the items were sharded.
	{en: "instances changed", zh: "实例有变化"},
	{en: "items were never sharded", zh: "从未分片"},
	{en: "asked for by the flag", zh: "按分片标志的要求"},
	{en: "sharding total count changed from {n} to {m}", zh: "分片总数由 {n} 变为 {m}"},
	{en: "strategy changed from {n} to {m}", zh: "分片策略由“{n}”变为“{m}”"},
	{en: "a Java leader sharded the items", zh: "由 Java 主节点分片"},
	{en: "this server was enabled", zh: "此服务器已恢复"},
	{en: "this server was disabled", zh: "此服务器已暂停"},
	{en: "the server of {host} was disabled or enabled", zh: "{host} 的服务器已暂停或恢复"},
	{en: "item {n} has ended on its Java host", zh: "分片 {n} 已在其 Java 主机上结束"},

	// What a host says of itself.
	{en: "this host's clock is {reason}, and may be {took}: what it begins is late, and nothing begins before its clock has come to what was begun", zh: "此主机的时钟{reason}，允许 {took}：由它启动的都会延迟，而且在其时钟到达已启动的时刻之前不会启动任何任务"},
	{en: "this host's clock is {reason}, and may be {took}: nothing begins here earlier than {early} before its instant by the registry's clock", zh: "此主机的时钟{reason}，允许 {took}：按注册中心的时钟，这里不会早于该时刻前 {early} 启动任何任务"},
	{en: "this host's clock is {reason}, more than the catch-up window of {took}: of what was due in the meantime only the newest instant runs here when the clock is right", zh: "此主机的时钟{reason}，超过补执行期限 {took}：时钟恢复正确后，其间到来的时刻中只有最新的会在这里运行"},
	{en: "{took} behind the registry's", zh: "比注册中心慢 {took}"},
	{en: "{took} ahead of the registry's", zh: "比注册中心快 {took}"},
	{en: "the last host here (pid {pid}, started {at}) did not end well: {reason}", zh: "这里的上一个主机进程（进程号 {pid}，启动于 {at}）没有正常结束：{reason}"},
	{en: "it ended itself, because a guest of a lost session could not be stopped (exit code 3)", zh: "它自行结束，因为无法停止已丢失会话的客体（退出码 3）"},
	{en: "its dead man's timer was due {took} before this start: it was killed or crashed, or the timer ended it, because it was frozen or a guest outlived the session", zh: "其看门狗定时器在本次启动前 {took} 到期：它被终止或崩溃，或者因被冻结或有客体在会话结束后仍在运行而被定时器结束"},
	{en: "its dead man's timer was not due: it was killed, for want of memory for example, or it crashed", zh: "其看门狗定时器未到期：它被终止（例如内存不足），或者崩溃了"},
	{en: "the machine was started again since", zh: "此后机器重新启动过"},
	{en: "unknown: its timer was due long before this start, or the record does not say enough", zh: "原因未知：其定时器早在本次启动之前已到期，或记录不足"},

	// Who made a change that no user made.
	{en: "file {file} on host {host}", zh: "主机 {host} 上的文件 {file}"},
	{en: "the registry", zh: "注册中心"},
}

// translate puts a report into a language; empty if it is not one that hosts say in the same
// words each time.
func (tl *timeline) translate(in i18n.Language, text string) string {
	for _, r := range reports {
		found, ok := match(r[en], text)
		if !ok {
			continue
		}
		return i18n.Fill(r[in], func(place string) string {
			v := found[place]
			switch place {
			case "reason":
				return tl.said(in, report{text: v})
			case "hosts":
				return tl.value(in, strings.Split(v, ", "), group{})
			}
			if d, err := time.ParseDuration(v); err == nil {
				return duration(in, d)
			}
			if t, err := time.Parse(time.RFC3339, v); err == nil {
				return tl.at(t)
			}
			return v
		})
	}
	return ""
}

// match reads what stands in the places of a text that was made of a pattern.
func match(pattern, text string) (found map[string]string, ok bool) {
	found = make(map[string]string)
	for {
		fixed, rest, more := strings.Cut(pattern, "{")
		if text, ok = strings.CutPrefix(text, fixed); !ok {
			return nil, false
		}
		if !more {
			return found, text == ""
		}
		place, after, _ := strings.Cut(rest, "}")
		next, _, _ := strings.Cut(after, "{")
		n := len(text)
		if next != "" {
			n = strings.Index(text, next)
		}
		if n <= 0 {
			return nil, false
		}
		found[place], text, pattern = text[:n], text[n:], after
	}
}

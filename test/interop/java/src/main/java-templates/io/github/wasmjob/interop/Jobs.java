package io.github.wasmjob.interop;

import com.google.gson.JsonObject;
import ${bootstrap}.ScheduleJobBootstrap;
import ${context}.ShardingContext;
import ${internal}.snapshot.SnapshotService;
import org.apache.shardingsphere.elasticjob.api.JobConfiguration;
import org.apache.shardingsphere.elasticjob.reg.base.CoordinatorRegistryCenter;
import org.apache.shardingsphere.elasticjob.reg.zookeeper.ZookeeperConfiguration;
import org.apache.shardingsphere.elasticjob.reg.zookeeper.ZookeeperRegistryCenter;
import org.apache.shardingsphere.elasticjob.simple.job.SimpleJob;

import java.lang.management.ManagementFactory;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;

/** Hosts jobs whose items tell when they begin and end, and may be held. */
final class Jobs {

    private static final Set<String> KNOWN = Set.of("start", "stop", "hold", "release", "count", "memory", "snapshot");

    private final Map<String, String> options;

    private final Map<String, ScheduleJobBootstrap> started = new ConcurrentHashMap<>();

    private final Map<String, AtomicLong> runs = new ConcurrentHashMap<>();

    /** Numbers the runs of this process. */
    private final AtomicLong begun = new AtomicLong();

    /** Jobs whose items do not end; its monitor is notified of each release. */
    private final Set<String> held = new HashSet<>();

    private CoordinatorRegistryCenter registry;

    Jobs(final Map<String, String> options) {
        this.options = options;
    }

    boolean knows(final JsonObject request) {
        return KNOWN.contains(request.get("do").getAsString());
    }

    Object serve(final JsonObject request) throws Exception {
        String job = Peer.text(request, "job");
        switch (request.get("do").getAsString()) {
            case "start":
                return start(request);
            case "stop":
                started.remove(job).shutdown();
                return true;
            case "hold":
                synchronized (held) {
                    return held.add(job);
                }
            case "release":
                synchronized (held) {
                    held.remove(job);
                    held.notifyAll();
                }
                return true;
            case "count":
                return counter(job).get();
            case "memory":
                return memory();
            case "snapshot":
                new SnapshotService(registry(), request.get("port").getAsInt()).listen();
                return true;
            default:
                throw new IllegalArgumentException("no such request: " + request);
        }
    }

    private AtomicLong counter(final String job) {
        return runs.computeIfAbsent(job, unused -> new AtomicLong());
    }

    private static Map<String, Long> memory() {
        System.gc();
        Map<String, Long> result = new HashMap<>();
        result.put("heap", ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed());
        result.put("threads", (long) ManagementFactory.getThreadMXBean().getThreadCount());
        return result;
    }

    private synchronized CoordinatorRegistryCenter registry() {
        if (null == registry) {
            ZookeeperConfiguration config = new ZookeeperConfiguration(options.get("--connect"), options.get("--namespace"));
            if (options.containsKey("--digest")) {
                config.setDigest(options.get("--digest"));
            }
            if (options.containsKey("--session-timeout")) {
                config.setSessionTimeoutMilliseconds(Integer.parseInt(options.get("--session-timeout")));
            }
            CoordinatorRegistryCenter result = new ZookeeperRegistryCenter(config);
            result.init();
            registry = result;
        }
        return registry;
    }

    /** Starts a job; with count, that many of them, named job-0, job-1, …. */
    private Object start(final JsonObject request) {
        int count = Peer.number(request, "count", 0);
        if (0 == count) {
            start(request, request.get("job").getAsString());
        }
        for (int i = 0; i < count; i++) {
            start(request, request.get("job").getAsString() + "-" + i);
        }
        Map<String, Object> result = new LinkedHashMap<>();
        result.put("pid", ManagementFactory.getRuntimeMXBean().getPid());
        return result;
    }

    private void start(final JsonObject request, final String job) {
        JobConfiguration.Builder config = JobConfiguration.newBuilder(job, request.get("total").getAsInt())
                .cron(Peer.text(request, "cron"))
                .failover(Peer.is(request, "failover"))
                .misfire(Peer.is(request, "misfire"))
                .monitorExecution(Peer.is(request, "monitorExecution"))
                .overwrite(Peer.is(request, "overwrite"))
                .reconcileIntervalMinutes(Peer.number(request, "reconcileIntervalMinutes", 10));
        if (null != Peer.text(request, "parameter")) {
            config.jobParameter(Peer.text(request, "parameter"));
        }
        if (null != Peer.text(request, "strategy")) {
            config.jobShardingStrategyType(Peer.text(request, "strategy"));
        }
        if (null != Peer.text(request, "itemParameters")) {
            config.shardingItemParameters(Peer.text(request, "itemParameters"));
        }
        Item item = new Item(job, Peer.number(request, "milliseconds", 0), Peer.number(request, "beat", 0), Peer.is(request, "quiet"));
        ScheduleJobBootstrap bootstrap = new ScheduleJobBootstrap(registry(), item, config.build());
        started.put(job, bootstrap);
        bootstrap.schedule();
    }

    /** The job. Its class name is what ElasticJob stores in the job's root. */
    private final class Item implements SimpleJob {

        private final String job;

        private final int milliseconds;

        /** If not 0, an item has as many steps of so many milliseconds as its parameter says. */
        private final int beat;

        private final boolean quiet;

        private final AtomicLong runs;

        Item(final String job, final int milliseconds, final int beat, final boolean quiet) {
            this.job = job;
            this.milliseconds = milliseconds;
            this.beat = beat;
            this.quiet = quiet;
            runs = counter(job);
        }

        @Override
        public void execute(final ShardingContext context) {
            long run = begun.incrementAndGet();
            tell("begin", run, context, false);
            boolean interrupted = false;
            try {
                if (milliseconds > 0) {
                    Thread.sleep(milliseconds);
                }
                for (int left = 0 == beat ? 0 : Integer.parseInt(context.getShardingParameter()); left > 0; left--) {
                    Thread.sleep(beat);
                    tell("effect", run, context, false);
                }
                synchronized (held) {
                    while (held.contains(job)) {
                        held.wait();
                    }
                }
            } catch (final InterruptedException ex) {
                interrupted = true;
            }
            runs.incrementAndGet();
            tell("end", run, context, interrupted);
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }

        private void tell(final String event, final long run, final ShardingContext context, final boolean interrupted) {
            if (quiet) {
                return;
            }
            JsonObject line = new JsonObject();
            line.addProperty("event", event);
            line.addProperty("job", job);
            line.addProperty("item", context.getShardingItem());
            line.addProperty("run", run);
            line.addProperty("total", context.getShardingTotalCount());
            line.addProperty("parameter", context.getJobParameter());
            line.addProperty("milliseconds", System.currentTimeMillis());
            if (interrupted) {
                line.addProperty("interrupted", true);
            }
            Peer.tell(line);
        }
    }
}

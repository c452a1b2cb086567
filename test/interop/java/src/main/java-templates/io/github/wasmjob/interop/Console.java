package io.github.wasmjob.interop;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import ${lifecycle}.api.JobAPIFactory;
import ${lifecycle}.api.JobConfigurationAPI;
import ${lifecycle}.api.JobOperateAPI;
import ${lifecycle}.api.JobStatisticsAPI;
import ${lifecycle}.api.ServerStatisticsAPI;
import ${lifecycle}.api.ShardingOperateAPI;
import ${lifecycle}.api.ShardingStatisticsAPI;
import ${configuration}.JobConfigurationPOJO;

import java.io.IOException;
import java.lang.reflect.Method;
import java.util.LinkedHashMap;
import java.util.Map;

/** The six APIs of a console, as requests. Connects with the first one. */
final class Console {

    private final String connect;

    private final String namespace;

    private final String digest;

    Console(final String connect, final String namespace, final String digest) {
        this.connect = connect;
        this.namespace = namespace;
        this.digest = digest;
    }

    Object serve(final JsonObject request) throws IOException, ReflectiveOperationException {
        String job = Peer.text(request, "job");
        String ip = Peer.text(request, "ip");
        String item = Peer.text(request, "item");
        switch (request.get("do").getAsString()) {
            case "trigger":
                operate().trigger(job);
                return true;
            case "disable":
                operate().disable(job, ip);
                return true;
            case "enable":
                operate().enable(job, ip);
                return true;
            case "shutdown":
                operate().shutdown(job, ip);
                return true;
            case "remove":
                operate().remove(job, ip);
                return true;
            case "dump":
                return operate().dump(job, ip, request.get("port").getAsInt());
            case "disable item":
                items().disable(job, item);
                return true;
            case "enable item":
                items().enable(job, item);
                return true;
            case "configuration":
                return shown(configurations().getJobConfiguration(job));
            case "update configuration":
                update(job, request.getAsJsonObject("change"));
                return true;
            case "remove configuration":
                configurations().removeJobConfiguration(job);
                return true;
            case "jobs":
                return null == ip ? jobs().getAllJobsBriefInfo() : jobs().getJobsBriefInfo(ip);
            case "job":
                return jobs().getJobBriefInfo(job);
            case "count jobs":
                return jobs().getJobsTotalCount();
            case "servers":
                return servers().getAllServersBriefInfo();
            case "count servers":
                return servers().getServersTotalCount();
            case "sharding":
                return sharding().getShardingInfo(job);
            default:
                throw new IllegalArgumentException("no such request: " + request);
        }
    }

    /** What a console's form shows; the rest has types that only Java knows. */
    private static Map<String, Object> shown(final JobConfigurationPOJO pojo) throws ReflectiveOperationException {
        if (null == pojo) {
            return null;
        }
        Map<String, Object> result = new LinkedHashMap<>();
        for (Method each : JobConfigurationPOJO.class.getMethods()) {
            String name = each.getName();
            int prefix = name.startsWith("get") ? 3 : name.startsWith("is") ? 2 : 0;
            if (0 == prefix || each.getParameterCount() > 0 || Object.class == each.getDeclaringClass() || "getJobExtraConfigurations".equals(name)) {
                continue;
            }
            result.put(Character.toLowerCase(name.charAt(prefix)) + name.substring(prefix + 1), each.invoke(pojo));
        }
        return result;
    }

    /** As a console does: read, change some fields, write it all back. */
    private void update(final String job, final JsonObject change) throws ReflectiveOperationException {
        JobConfigurationPOJO pojo = configurations().getJobConfiguration(job);
        if (null == pojo) {
            throw new IllegalStateException("no configuration of " + job);
        }
        for (Map.Entry<String, JsonElement> each : change.entrySet()) {
            JsonPrimitive value = each.getValue().getAsJsonPrimitive();
            String setter = "set" + Character.toUpperCase(each.getKey().charAt(0)) + each.getKey().substring(1);
            if (value.isBoolean()) {
                JobConfigurationPOJO.class.getMethod(setter, boolean.class).invoke(pojo, value.getAsBoolean());
            } else if (value.isNumber()) {
                JobConfigurationPOJO.class.getMethod(setter, int.class).invoke(pojo, value.getAsInt());
            } else {
                JobConfigurationPOJO.class.getMethod(setter, String.class).invoke(pojo, value.getAsString());
            }
        }
        configurations().updateJobConfiguration(pojo);
    }

    private JobOperateAPI operate() {
        return JobAPIFactory.createJobOperateAPI(connect, namespace, digest);
    }

    private ShardingOperateAPI items() {
        return JobAPIFactory.createShardingOperateAPI(connect, namespace, digest);
    }

    private JobConfigurationAPI configurations() {
        return JobAPIFactory.createJobConfigurationAPI(connect, namespace, digest);
    }

    private JobStatisticsAPI jobs() {
        return JobAPIFactory.createJobStatisticsAPI(connect, namespace, digest);
    }

    private ServerStatisticsAPI servers() {
        return JobAPIFactory.createServerStatisticsAPI(connect, namespace, digest);
    }

    private ShardingStatisticsAPI sharding() {
        return JobAPIFactory.createShardingStatisticsAPI(connect, namespace, digest);
    }
}

package io.github.wasmjob.interop;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonObject;
import ${env}.IpUtils;

import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.management.ManagementFactory;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * An ElasticJob process that does what it is told: each line on stdin is a
 * request, each line on stdout an answer or an event, all of them JSON objects.
 *
 * <p>{@code {"id":1,"do":"trigger","job":"a"}} is answered by
 * {@code {"id":1,"result":…}} or {@code {"id":1,"error":"…"}}. Requests are
 * served at the same time, each in a thread of its own. The end of stdin ends
 * the process at once, so that it never outlives the test that started it.
 */
public final class Peer {

    private static final Gson GSON = new GsonBuilder().serializeNulls().disableHtmlEscaping().create();

    private static final PrintStream OUT =
            new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);

    private Peer() {
    }

    public static void main(final String[] args) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (int i = 0; i + 1 < args.length; i += 2) {
            options.put(args[i], args[i + 1]);
        }
        if (options.containsKey("--ip")) {
            beAt(options.get("--ip"));
        }
        Console console = new Console(options.get("--connect"), options.get("--namespace"), options.get("--digest"));
        Jobs jobs = new Jobs(options);
        JsonObject ready = new JsonObject();
        ready.addProperty("event", "ready");
        ready.addProperty("pid", ManagementFactory.getRuntimeMXBean().getPid());
        tell(ready);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        ExecutorService requests = Executors.newCachedThreadPool();
        for (String line; null != (line = in.readLine());) {
            JsonObject request = GSON.fromJson(line, JsonObject.class);
            requests.execute(() -> serve(request, console, jobs));
        }
        Runtime.getRuntime().halt(0);
    }

    /** Every process on this machine has the same address; a peer needs its own. */
    private static void beAt(final String ip) throws ReflectiveOperationException {
        Field cached = IpUtils.class.getDeclaredField("cachedIpAddress");
        cached.setAccessible(true);
        cached.set(null, ip);
    }

    private static void serve(final JsonObject request, final Console console, final Jobs jobs) {
        JsonObject answer = new JsonObject();
        answer.add("id", request.get("id"));
        try {
            Object result = jobs.knows(request) ? jobs.serve(request) : console.serve(request);
            answer.add("result", GSON.toJsonTree(result));
        } catch (final Throwable ex) {
            StringWriter text = new StringWriter();
            ex.printStackTrace(new PrintWriter(text));
            answer.addProperty("error", text.toString());
        }
        tell(answer);
    }

    static void tell(final JsonObject line) {
        String text = GSON.toJson(line);
        synchronized (OUT) {
            OUT.println(text);
            OUT.flush();
        }
    }

    static String text(final JsonObject request, final String key) {
        return request.has(key) && !request.get(key).isJsonNull() ? request.get(key).getAsString() : null;
    }

    static int number(final JsonObject request, final String key, final int otherwise) {
        return request.has(key) ? request.get(key).getAsInt() : otherwise;
    }

    static boolean is(final JsonObject request, final String key) {
        return request.has(key) && request.get(key).getAsBoolean();
    }
}

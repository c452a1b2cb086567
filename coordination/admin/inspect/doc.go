// Package inspect is what people see of jobs: one job, item by item and instance by
// instance, or all jobs of a namespace in brief. It reads on request, watches nothing
// and writes nothing.
package inspect

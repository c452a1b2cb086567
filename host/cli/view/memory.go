package view

// memory keeps at most most values of jobs. Beyond that it forgets all, in case the ends of some never come.
type memory[K comparable, V any] struct {
	most int
	jobs map[string]map[K]V
	n    int // values
}

func newMemory[K comparable, V any](most int) *memory[K, V] {
	return &memory[K, V]{most: most, jobs: make(map[string]map[K]V)}
}

// get returns a value of a job, the zero value if there is none.
func (m *memory[K, V]) get(job string, key K) V { return m.jobs[job][key] }

// put keeps a value of a job.
func (m *memory[K, V]) put(job string, key K, v V) {
	_, known := m.jobs[job][key]
	if !known && m.n >= m.most {
		clear(m.jobs)
		m.n = 0
	}
	if m.jobs[job] == nil {
		m.jobs[job] = make(map[K]V)
	}
	if m.jobs[job][key] = v; !known {
		m.n++
	}
}

// drop forgets a value of a job.
func (m *memory[K, V]) drop(job string, key K) {
	of := m.jobs[job]
	if _, known := of[key]; !known {
		return
	}
	m.n--
	if delete(of, key); len(of) == 0 {
		delete(m.jobs, job)
	}
}

// forget forgets a job, without looking at the values of others.
func (m *memory[K, V]) forget(job string) {
	m.n -= len(m.jobs[job])
	delete(m.jobs, job)
}

//go:build !race && !wasip1

package sdktest

const raceDetector = false

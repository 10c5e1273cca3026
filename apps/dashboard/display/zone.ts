import { useEffect, useState } from 'preact/hooks'

/** The time zone of all shown times and of all dates in filters. */
export type Zone = 'utc' | 'local'

const storageKey = 'tollkeeper.zone'
const changed = 'tollkeeper:zone'

/** Returns the chosen zone. Default: the browser's own zone, also if the browser can't store a choice. */
export function readZone(): Zone {
  try {
    return globalThis.localStorage?.getItem(storageKey) === 'utc' ? 'utc' : 'local'
  } catch {
    return 'local'
  }
}

/** Stores the zone for this browser and renders all users of {@link useZone} again. */
export function chooseZone(zone: Zone): void {
  localStorage.setItem(storageKey, zone)
  dispatchEvent(new Event(changed))
}

/** Returns the chosen zone, and renders the caller again when it changes, also in another tab. */
export function useZone(): Zone {
  const [zone, setZone] = useState(readZone)
  useEffect(() => {
    const follow = () => setZone(readZone())
    addEventListener(changed, follow)
    addEventListener('storage', follow)
    return () => {
      removeEventListener(changed, follow)
      removeEventListener('storage', follow)
    }
  }, [])
  return zone
}

/** Returns the start of a day such as `2026-11-29` in the zone, as ISO 8601 in UTC. */
export function startOfDay(date: string, zone: Zone): string {
  return atDay(date, zone, 0)
}

/** Returns the start of the day after `date` in the zone, as ISO 8601 in UTC. */
export function nextDay(date: string, zone: Zone): string {
  return atDay(date, zone, 1)
}

/**
 * Returns the start of the day that is `days` calendar days after `date`. It doesn't add hours, because a local day can have 23 or
 * 25 hours. Text that isn't a day is returned unchanged, so that the gateway can reject it.
 */
function atDay(date: string, zone: Zone, days: number): string {
  const [year = 0, month = 1, day = 1] = date.split('-').map(Number)
  const time =
    zone === 'utc' ? new Date(Date.UTC(year, month - 1, day + days)) : new Date(year, month - 1, day + days)
  return Number.isNaN(time.getTime()) ? date : time.toISOString()
}

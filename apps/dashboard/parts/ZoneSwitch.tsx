import { chooseZone, useZone } from '../display/zone.ts'
import { Choice } from './ui.tsx'

const zones = [
  ['local', 'Local time'],
  ['utc', 'UTC'],
] as const

/** Lets the user choose the zone of all times and filters. */
export function ZoneSwitch() {
  return <Choice label="Time zone" options={zones} value={useZone()} choose={chooseZone} />
}

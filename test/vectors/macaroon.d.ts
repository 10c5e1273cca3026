/** The part of npm `macaroon` with which the vectors are cross-checked; the package has no types. */
declare module 'macaroon' {
  export interface Macaroon {
    addFirstPartyCaveat(caveat: string | Uint8Array): void
    readonly identifier: Uint8Array
    readonly location: string | undefined
    readonly caveats: { identifier: Uint8Array; location?: string; vid?: Uint8Array }[]
    readonly signature: Uint8Array
    verify(rootKey: Uint8Array, check: (caveat: string) => string | null, discharges?: Macaroon[]): void
  }
  export function newMacaroon(options: {
    identifier: Uint8Array
    location?: string
    rootKey: Uint8Array
    version: 1 | 2
  }): Macaroon
  export function importMacaroon(binary: Uint8Array): Macaroon
}

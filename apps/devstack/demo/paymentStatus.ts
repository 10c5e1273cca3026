const pollMs = 100

/** Maximum time in ms to wait for a payment. */
export const patienceMs = 150_000

/** Resolves when the gateway reports this status for a payment. */
export async function untilStatus(
  gatewayUrl: string,
  paymentId: string,
  isReached: (status: string) => boolean,
): Promise<void> {
  await untilAnswer<{ payment_status?: string }>(gatewayUrl, `/payments/${paymentId}`, (payment) =>
    isReached(payment.payment_status ?? ''),
  )
}

/** Resolves when a closed tab is in the ledger, so that a batch can settle it. */
export async function untilTaken(gatewayUrl: string, tabId: string): Promise<void> {
  await untilAnswer<{ isTaken?: boolean }>(gatewayUrl, `/tabs/${tabId}`, ({ isTaken }) => isTaken === true)
}

async function untilAnswer<Body>(
  gatewayUrl: string,
  path: string,
  isReached: (body: Body) => boolean,
): Promise<void> {
  for (const end = Date.now() + patienceMs; Date.now() < end; ) {
    const answer = await fetch(new URL(path, gatewayUrl))
    const body = (await answer.json()) as Body
    if (answer.ok && isReached(body)) return
    await new Promise((resolve) => setTimeout(resolve, pollMs))
  }
  throw new Error(`${path} made no progress in ${patienceMs / 1000} s`)
}

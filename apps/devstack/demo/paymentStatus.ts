const pollMs = 100

/** How long we wait for a payment. */
export const patienceMs = 150_000

/** Resolves when the gateway knows a payment that has this status. */
export async function untilStatus(
  gatewayUrl: string,
  paymentId: string,
  isReached: (status: string) => boolean,
): Promise<void> {
  await untilAnswer<{ payment_status?: string }>(gatewayUrl, `/payments/${paymentId}`, (payment) =>
    isReached(payment.payment_status ?? ''),
  )
}

/** Resolves when a closed tab is in the ledger, so that a batch can take it. */
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
  throw new Error(`${path} didn't come further in ${patienceMs / 1000} s`)
}

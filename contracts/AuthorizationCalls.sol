// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IERC3009} from "@openzeppelin/contracts/interfaces/draft-IERC3009.sol";
import {Reason} from "./Reason.sol";
import {IBatchSettlement} from "./interfaces/IBatchSettlement.sol";

/// @title Calls the token once for each authorization, so that a failed one can't stop the others
/// @notice The base contract of BatchSettlement and TabSettlement.
abstract contract AuthorizationCalls {
    /// Value of MIN_CALL_GAS in both contracts.
    uint256 internal constant LEAST_CALL_GAS = 120_000;
    /// Gas that must remain besides the gas limit of a call: it pays for checking the call's outcome, logging its event
    /// and ending the batch. So an item that burns its whole limit can't revert the others. OUTCOME_GAS pays for logging
    /// and returning one byte of `outcomes`.
    uint256 internal constant TAIL_GAS = 60_000;
    uint256 internal constant OUTCOME_GAS = 16;

    uint256 internal constant NOT_TRIED = 0;
    uint256 internal constant SETTLED = 1;
    uint256 internal constant USED = 2;
    uint256 internal constant FAILED = 3;
    uint256 internal constant SKIPPED = 4;

    // Offsets that the assembly uses. Layout.t.sol compares them with the compiler's.
    uint256 internal constant WORD = 0x20;
    /// Offsets in `Run`. A selector is the last four bytes of its word.
    uint256 internal constant RUN_TOKEN = 0x00;
    uint256 internal constant RUN_CALL_GAS = 0x20;
    uint256 internal constant RUN_FROM = 0x60;
    uint256 internal constant RUN_NONCE = 0x100;
    uint256 internal constant RUN_TRANSFER = 0x5c;
    uint256 internal constant SELECTOR_IN_WORD = 0x1c;
    /// Sizes of the token's calldata: a selector with nine words, or with two.
    uint256 internal constant TRANSFER_SIZE = 0x124;
    uint256 internal constant STATE_SIZE = 0x44;

    /// The state that `settle` carries from one authorization to the next. The fields from `selector` to `s` are the
    /// token call's data in memory, so that each call writes only the words in which it differs from the call before.
    struct Run {
        address token;
        uint256 callGas;
        uint256 selector;
        uint256 from;
        uint256 to;
        uint256 value;
        uint256 validAfter;
        uint256 validBefore;
        bytes32 nonce;
        uint256 v;
        bytes32 r;
        uint256 s;
        uint256 neededGas;
        address feeRecipient;
        /// Whether the previous authorization was used, failed or was skipped. If so, the contract looks up the next
        /// one's state before trying it.
        bool probing;
        /// Payer of the last authorization that failed. While probing, this payer's authorizations are skipped. The
        /// initial value isn't an address.
        uint256 refused;
        /// The token's revert data for the last call that failed.
        bytes reason;
    }

    /// Tries the authorization in `run`.
    function _attempt(Run memory run, bytes32 r, bytes32 vs, bytes[] calldata signatures)
        internal
        returns (uint256 outcome)
    {
        if (run.probing) {
            if (gasleft() < run.neededGas) return NOT_TRIED;
            if (run.from == run.refused) return SKIPPED;
            if (_isUsed(run)) return USED;
            run.probing = false;
        }
        bool success;
        uint256 s = uint256(vs) << 1 >> 1;
        if (s != 0) {
            unchecked {
                run.v = 27 + (uint256(vs) >> 255);
            }
            run.r = r;
            run.s = s;
            if (gasleft() < run.neededGas) return NOT_TRIED;
            assembly ("memory-safe") {
                success := call(
                    mload(add(run, RUN_CALL_GAS)), mload(add(run, RUN_TOKEN)), 0, add(run, RUN_TRANSFER), TRANSFER_SIZE, 0, 0
                )
            }
        } else {
            if (uint256(r) >= signatures.length) revert IBatchSettlement.InvalidSignatureIndex(uint256(r));
            bytes memory data = _encode(run, signatures[uint256(r)]);
            if (gasleft() < run.neededGas) return NOT_TRIED;
            assembly ("memory-safe") {
                success := call(
                    mload(add(run, RUN_CALL_GAS)), mload(add(run, RUN_TOKEN)), 0, add(data, WORD), mload(data), 0, 0
                )
            }
        }
        if (success) return SETTLED;
        run.reason = Reason.read();
        run.probing = true;
        if (_isUsed(run)) return USED;
        run.refused = run.from;
        return FAILED;
    }

    function _encode(Run memory run, bytes calldata signature) internal pure returns (bytes memory) {
        return abi.encodeWithSelector(
            _bytesSelector(),
            run.from,
            run.to,
            run.value,
            run.validAfter,
            run.validBefore,
            run.nonce,
            signature
        );
    }

    /// Returns whether the token reports this payer's nonce as used or cancelled.
    function _isUsed(Run memory run) internal view returns (bool used) {
        uint256 selector = uint32(IERC3009.authorizationState.selector);
        assembly ("memory-safe") {
            let data := mload(0x40)
            mstore(data, selector)
            mstore(add(data, 0x20), mload(add(run, RUN_FROM)))
            mstore(add(data, 0x40), mload(add(run, RUN_NONCE)))
            let success :=
                staticcall(gas(), mload(add(run, RUN_TOKEN)), add(data, SELECTOR_IN_WORD), STATE_SIZE, 0, WORD)
            used := and(and(success, gt(returndatasize(), 0x1f)), eq(mload(0), 1))
        }
    }

    /// Returns the selector of the token's function that takes signatures of any length.
    function _bytesSelector() internal pure virtual returns (bytes4);

    function _from(Run memory run) internal pure returns (address) {
        return address(uint160(run.from));
    }
}

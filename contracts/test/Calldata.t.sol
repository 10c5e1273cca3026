// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IBatchSettlement} from "../interfaces/IBatchSettlement.sol";
import {ContractWallet} from "./mocks/Wallets.sol";
import {CalldataTest} from "./support/CalldataTest.sol";

contract BatchCalldataTest is CalldataTest {
    address private constant OTHER = address(0xCAFE);

    Terms[COUNT] private _signed;

    function setUp() public override {
        super.setUp();
        payees.push(OTHER);
        IBatchSettlement.Payment[] memory payments = new IBatchSettlement.Payment[](COUNT);
        bytes[] memory signatures = new bytes[](2);
        for (uint256 i; i < COUNT; ++i) {
            Terms memory terms = _terms(i);
            terms.payeeIndex = i % 2;
            (terms.amount, terms.fee) = (40_000 + i, 2_000 + 10 * i);
            if (i == 1) terms.from = address(new ContractWallet(vm.addr(terms.key)));
            if (i == 2) terms.feeNonce = keccak256("explicit");
            _fund(terms);
            payments[i] = _pack(terms);
            _signed[i] = terms;
        }
        bytes memory own = _sign(_signed[1], _provider(_signed[1]));
        bytes memory fee = _sign(_signed[1], _fee(_signed[1]));
        (signatures[0], signatures[1]) = (bytes.concat(own, own, own), bytes.concat(fee, fee, fee));
        (payments[1].r, payments[1].vs) = (0, 0);
        (payments[1].feeR, payments[1].feeVs) = (bytes32(uint256(1)), 0);
        _data = abi.encodeCall(settlement.settle, (_batch(), payees, payments, signatures));
    }

    /// Checks that each authorization moved as it was signed or not at all, that a fee moved only together with its
    /// payment's provider authorization, and that no other money moved.
    function _try(bytes memory data) internal override returns (uint256 moved) {
        (bool success,) = address(settlement).call(data);
        uint256[2] memory provided;
        uint256 fees;
        for (uint256 i; i < COUNT; ++i) {
            Terms memory terms = _signed[i];
            bool paid = usdc.authorizationState(terms.from, terms.nonce);
            bool feePaid = usdc.authorizationState(terms.from, _fee(terms).nonce);
            vm.assertTrue(paid || !feePaid, "no fee without the provider's half");
            provided[terms.payeeIndex] += paid ? terms.amount : 0;
            fees += feePaid ? terms.fee : 0;
            moved += (paid ? 1 : 0) + (feePaid ? 1 : 0);
            uint256 left = (paid ? 0 : terms.amount) + (feePaid ? 0 : terms.fee);
            vm.assertEq(usdc.balanceOf(terms.from), left, "the buyer's remaining balance");
        }
        vm.assertEq(usdc.balanceOf(PROVIDER), 1 + provided[0], "the first provider's balance");
        vm.assertEq(usdc.balanceOf(OTHER), provided[1], "the second provider's balance");
        vm.assertEq(usdc.balanceOf(PLATFORM), 1 + fees, "the platform's balance");
        vm.assertEq(success ? 1 : 0, moved == 0 ? 0 : 1, "reverts exactly if nothing moves");
    }

    function _signedCount() internal pure override returns (uint256) {
        return 2 * COUNT;
    }

    /// The token rejects the malleated signature, which recovers to the same buyer.
    function test_behavior_malleatedSignature() public {
        uint256 order = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141;
        Terms memory terms = _signed[0];
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(terms.key, _digest(terms, _provider(terms)));
        bytes[] memory signatures = new bytes[](1);
        signatures[0] = abi.encodePacked(r, order - uint256(s), 55 - v);
        IBatchSettlement.Payment[] memory payments = _one(terms);
        (payments[0].r, payments[0].vs) = (0, 0);
        _expectNothingSettled(hex"34");
        settlement.settle(_batch(), payees, payments, signatures);
    }

    /// Two authorizations can't share a nonce: once the provider's has moved, the fee's counts as used.
    function test_behavior_sameNonceForBoth() public {
        Terms memory terms = _terms(9);
        terms.feeNonce = terms.nonce;
        _fund(terms);
        vm.assertEq(_settle(_one(terms)), hex"12", "outcomes");
        vm.assertEq(usdc.balanceOf(terms.from), terms.fee, "the buyer's remaining balance");
        vm.assertEq(usdc.balanceOf(PLATFORM), 1, "the platform's balance");
    }
}

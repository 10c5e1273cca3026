// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IBatchSettlement} from "../interfaces/IBatchSettlement.sol";
import {Attack, HostileWallet} from "./mocks/Wallets.sol";
import {SplitterTest} from "./support/SplitterTest.sol";

/// @notice After an authorization fails, the following ones of the same payer are skipped, so a payer can burn the gas
/// of only one.
contract SkipsTest is SplitterTest {
    /// Returns the terms of the payment with number `index`, signed by the buyer with number `buyer`.
    function _of(uint256 buyer, uint256 index) private pure returns (Terms memory terms) {
        terms = _terms(index);
        (terms.key, terms.from) = (_key(buyer), _buyer(buyer));
    }

    function _forged(Terms memory terms) private view returns (IBatchSettlement.Payment memory payment) {
        payment = _pack(terms);
        (payment.r, payment.vs) = _compact(_key(1 << 20), _digest(terms, _provider(terms)));
    }

    /// Returns one good payment for each entry of `buyers`, and funds these buyers.
    function _of(uint256[] memory buyers) private returns (IBatchSettlement.Payment[] memory payments) {
        payments = new IBatchSettlement.Payment[](buyers.length);
        for (uint256 i; i < buyers.length; ++i) {
            Terms memory terms = _of(buyers[i], i);
            _fund(terms);
            payments[i] = _pack(terms);
        }
    }

    function _buyers(bytes memory list) private pure returns (uint256[] memory buyers) {
        buyers = new uint256[](list.length);
        for (uint256 i; i < list.length; ++i) buyers[i] = uint8(list[i]);
    }

    function test_default_restOfAPayerIsSkipped() public {
        IBatchSettlement.Payment[] memory payments = _of(_buyers(hex"0001010102"));
        payments[1] = _forged(_of(1, 1));
        vm.recordLogs();
        vm.assertEq(_settle(payments), hex"1134444411", "outcomes");
        // Two payments of four logs each, one failure, one BatchSettled.
        vm.assertEq(vm.getRecordedLogs().length, 2 * 4 + 1 + 1, "a skipped payment logs nothing");
        _expectNothingSettled(hex"2234444422");
        _settle(payments);
        payments[1] = _pack(_of(1, 1));
        vm.assertEq(_settle(payments), hex"2211111122", "the skipped ones settle later");
    }

    function test_default_authorizations() public {
        IBatchSettlement.Authorization[] memory authorizations = _goodOnes(0, 4);
        for (uint256 i = 1; i < 3; ++i) authorizations[i] = _packOne(_of(1, i));
        authorizations[1].r ^= bytes32(uint256(1));
        vm.assertEq(_settleOnes(authorizations, _noSweep()), hex"10304010", "outcomes");
        authorizations[1].r ^= bytes32(uint256(1));
        usdc.mint(_buyer(1), 1_000_000);
        vm.assertEq(_settleOnes(authorizations, _noSweep()), hex"20101020", "the skipped ones settle later");
    }

    function test_args_withoutAFee() public {
        IBatchSettlement.Payment[] memory payments = _of(_buyers(hex"0000"));
        for (uint256 i; i < 2; ++i) {
            Terms memory terms = _of(0, i);
            terms.fee = 0;
            payments[i] = i == 0 ? _forged(terms) : _pack(terms);
        }
        _expectNothingSettled(hex"3040");
        _settle(payments);
    }

    function test_behavior_aFeeThatFailsCounts() public {
        IBatchSettlement.Payment[] memory payments = _of(_buyers(hex"0000"));
        payments[0].feeR ^= bytes32(uint256(1));
        vm.assertEq(_settle(payments), hex"1344", "outcomes");
    }

    function test_behavior_usedAuthorizationsCauseNoSkips() public {
        IBatchSettlement.Payment[] memory payments = _of(_buyers(hex"00000000"));
        _submit(_of(0, 0), _provider(_of(0, 0)));
        _cancel(_of(0, 2), _of(0, 2).nonce);
        vm.assertEq(_settle(payments), hex"21112111", "outcomes");
    }

    /// The contract forgets a payer's failure once it tries another payer. So in a batch that isn't sorted by payer, one
    /// payer can fail several times. The caller, who pays for the gas, chooses the order.
    function test_behavior_unsorted() public {
        IBatchSettlement.Payment[] memory payments = _of(_buyers(hex"0001000100"));
        (payments[0], payments[3]) = (_forged(_of(0, 0)), _forged(_of(1, 3)));
        vm.assertEq(_settle(payments), hex"3411113411", "outcomes");
    }

    /// A failure in one batch has no effect on the next.
    function test_behavior_noFailureCarriesOverToTheNextBatch() public {
        IBatchSettlement.Payment[] memory payments = _of(_buyers(hex"000001"));
        payments[1] = _forged(_of(0, 1));
        vm.assertEq(_settle(payments), hex"113411", "outcomes");
        vm.assertEq(_settle(_one(_of(0, 3))), hex"11", "outcomes of the next");
    }

    /// The model: each payer's good payments before its first failure settle, independently of the other payers.
    function test_fuzz_sortedByPayer(uint256 seed) public {
        uint256 count = 2 + seed % 14;
        uint256[] memory buyers = new uint256[](count);
        for (uint256 i = 1; i < count; ++i) buyers[i] = buyers[i - 1] + (seed >> i & 1);
        IBatchSettlement.Payment[] memory payments = _of(buyers);
        bytes memory expected = _repeat(0x11, count);
        bool refused;
        for (uint256 i; i < count; ++i) {
            if (i > 0 && buyers[i] != buyers[i - 1]) refused = false;
            bool bad = seed >> (32 + 2 * i) & 3 == 0;
            if (bad) payments[i] = _forged(_of(buyers[i], i));
            if (refused) expected[i] = 0x44;
            else if (bad) expected[i] = 0x34;
            refused = refused || bad;
        }
        uint256 settled;
        for (uint256 i; i < count; ++i) if (expected[i] == 0x11) ++settled;
        if (settled == 0) _expectNothingSettled(expected);
        bytes memory outcomes = _settle(payments);
        if (settled == 0) return;
        vm.assertEq(outcomes, expected, "outcomes");
        vm.assertEq(usdc.balanceOf(PROVIDER) - 1, settled * 47_500, "the provider's balance");
        vm.assertEq(usdc.balanceOf(PLATFORM) - 1, settled * 2_500, "the platform's balance");
    }

    // Limits on the gas that one payer can burn.

    uint256 private constant MANY = 250;

    function _burner() private returns (address) {
        return address(new HostileWallet(Attack.BURN_ALL_GAS, address(0), ""));
    }

    /// Returns `MANY` authorizations of one payer, which all fail, and then one of an honest payer.
    function _manyOf(address payer, bool burns) private returns (IBatchSettlement.Authorization[] memory many) {
        many = new IBatchSettlement.Authorization[](MANY + 1);
        for (uint256 i; i < MANY; ++i) {
            Terms memory terms = _of(0, i);
            terms.from = payer;
            many[i] = _packOne(terms);
            if (burns) (many[i].r, many[i].vs) = (0, 0);
        }
        many[MANY] = _goodOnes(MANY, 1)[0];
    }

    function _checkBurnt(IBatchSettlement.Authorization[] memory many, uint256 mostGas) private {
        bytes memory expected = _repeat(0x40, MANY + 1);
        (expected[0], expected[MANY]) = (0x30, 0x10);
        vm.cool(address(usdc));
        uint256 gasBefore = gasleft();
        bytes memory outcomes =
            settlement.settleAuthorizations(_batch(), payees, many, new bytes[](1), _noSweep());
        vm.assertLe(gasBefore - gasleft(), mostGas, "gas");
        vm.assertEq(outcomes, expected, "outcomes");
    }

    function test_griefing_aMovedBalanceIsTriedOnce() public {
        IBatchSettlement.Authorization[] memory many = _manyOf(_buyer(0), false);
        _checkBurnt(many, 500_000);
    }

    function test_griefing_aBurnerIsTriedOnce() public {
        IBatchSettlement.Authorization[] memory many = _manyOf(_burner(), true);
        _checkBurnt(many, 500_000 + CALL_GAS);
    }

    /// The loop over many more payments of the burner must not use up the gas and revert what settled before them.
    function test_griefing_aBurnerWithALongRest() public {
        Terms memory burner = _terms(1);
        burner.from = _burner();
        IBatchSettlement.Payment[] memory payments = _goodPayments(0, 150);
        for (uint256 i = 1; i < 150; ++i) {
            burner.nonce = bytes32(i);
            payments[i] = _pack(burner);
            (payments[i].r, payments[i].vs) = (0, 0);
        }
        bytes memory data = abi.encodeCall(settlement.settle, (_batch(), payees, payments, new bytes[](1)));
        for (uint256 gasLimit = 320_000; gasLimit < 720_000; gasLimit += 4_000) {
            uint256 state = vm.snapshotState();
            vm.cool(address(usdc));
            (bool success,) = address(settlement).call{gas: gasLimit}(data);
            vm.assertTrue(success, "what settled stays settled");
            vm.revertToState(state);
        }
    }
}
